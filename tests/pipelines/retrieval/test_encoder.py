"""Vectors are those of the model, whatever else is in the call; the part of a long document that an encoder reads."""

import json
import os
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoModel, AutoTokenizer, BertModel, ModernBertConfig, ModernBertModel

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from pipelines.retrieval.embed import condense
from pipelines.retrieval.encoder import Encoder, resolve
from pipelines.retrieval.options import EncoderOptions
from tests.tiny_encoder import WORDS, make_encoder, mini_lm_folder, word_piece
from trainer.scorer.encoder import find_encoder

TEXTS = [
    "Berlin is the capital and largest city of Germany.",
    "A zebra is an animal with stripes that lives in Africa; it is related to the horse.",
    "Photosynthesis turns light into chemical energy. " * 12,
    "",
    "The [SEP] token and the [MASK] token are text here.",
    "日本語のテキスト",
]


def random_texts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS[:-1], rng.integers(0, 40))) for _ in range(count)]


def encoder(folder, **options):
    return Encoder(find_encoder(folder), EncoderOptions(name=folder, **options))


def change(path, **values) -> None:
    """Set values of an object in a JSON file."""
    Path(path).write_text(json.dumps(json.loads(Path(path).read_text()) | values))


def cosines(a, b):
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_encoder(str(tmp_path_factory.mktemp("encoder") / "tiny"))


def plain(folder, texts, max_length=512, pooling="mean"):
    """One text at a time, straight through transformers."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    vectors = []
    for text in texts:
        inputs = tokenizer(text, split_special_tokens=True, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state[0]
        vectors.append((states.mean(0) if pooling == "mean" else states[0]).numpy())
    return np.array(vectors)


def test_modernbert_gives_its_own_vectors_beyond_its_windows(tmp_path):
    folder = make_encoder(str(tmp_path / "tiny"))
    sizes: Any = {"hidden_size": 16, "intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2}
    special: Any = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    torch.manual_seed(0)
    model = ModernBertModel(ModernBertConfig(vocab_size=200, local_attention=8, **sizes, **special))
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    model.save_pretrained(folder)
    np.testing.assert_allclose(encoder(folder).encode(TEXTS), plain(folder, TEXTS), atol=1e-5)


def test_a_real_encoder_gives_its_own_vectors_and_nearly_the_same_by_cheaper_arithmetic():
    mini_lm = mini_lm_folder()
    exact, expected = encoder(mini_lm).encode(TEXTS), plain(mini_lm, TEXTS)
    assert (exact.shape, exact.dtype) == ((len(TEXTS), 384), np.float32)
    np.testing.assert_allclose(exact, expected, atol=1e-5 * np.abs(expected).max())
    cheap = encoder(mini_lm, precision="bfloat16")
    found = cheap.encode(TEXTS)
    assert cosines(found, exact).min() > 0.999
    assert cheap.encode(TEXTS).tobytes() == found.tobytes()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling(tiny, pooling):
    texts = random_texts(20)
    found = encoder(tiny, pooling=pooling).encode(texts)
    np.testing.assert_allclose(found, plain(tiny, texts, 64, pooling), atol=1e-5)


def test_a_vector_does_not_depend_on_the_other_texts(tiny):
    texts = random_texts(300)
    model = encoder(tiny)
    model._batch_tokens = 512  # several batches
    together = model.encode(texts)
    alone = np.concatenate([model.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5 * np.abs(alone).max())
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = model.encode([texts[row] for row in order])
    np.testing.assert_allclose(shuffled, together[order], atol=1e-5 * np.abs(alone).max())


def test_the_same_call_gives_the_same_bits(tiny):
    texts = random_texts(200)
    before = torch.get_num_threads()
    first = encoder(tiny, threads=2).encode(texts)
    torch.set_num_threads(1)
    assert encoder(tiny, threads=2).encode(texts).tobytes() == first.tobytes()
    torch.set_num_threads(before)


def test_the_limit_is_the_model_s_or_the_user_s(tiny):
    long = ["the fox " * 100]
    assert encoder(tiny).max_text_tokens == 62
    np.testing.assert_allclose(encoder(tiny).encode(long), plain(tiny, long, 64), atol=1e-5)
    assert encoder(tiny, max_length=9).max_text_tokens == 7
    np.testing.assert_allclose(encoder(tiny, max_length=9).encode(long), plain(tiny, long, 9), atol=1e-5)
    with pytest.raises(FarspanError, match=r"--max-length 2: the 2 special tokens of encoder tiny .* at least 3"):
        encoder(tiny, max_length=2)
    for asked, comes_to in ((3, 3), (64, 64), (512, 64)):
        assert resolve(EncoderOptions(name=tiny, max_length=asked), find_encoder(tiny)).max_length == comes_to


def test_a_configuration_of_no_model_is_refused_before_weights_are_read(tiny, tmp_path):
    broken = shutil.copytree(tiny, str(tmp_path / "broken"))
    change(f"{broken}/config.json", hidden_act="wave")
    with pytest.raises(FarspanError, match=r"config\.json describes no model that can be built"):
        resolve(EncoderOptions(name=broken), find_encoder(broken))


def test_roberta_counts_positions_behind_padding(tmp_path):
    from transformers import RobertaConfig, RobertaModel

    folder = make_encoder(str(tmp_path / "encoder"))
    sizes: Any = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "pad_token_id": 0,
    }
    config = RobertaConfig(vocab_size=word_piece().get_vocab_size(), max_position_embeddings=40, **sizes)
    RobertaModel(config).save_pretrained(folder)
    model = encoder(folder)
    assert model.max_text_tokens == 40 - 1 - 2
    assert resolve(EncoderOptions(name=folder), find_encoder(folder)).max_length == 40 - 1
    assert np.isfinite(model.encode(["the fox " * 100])).all()


def test_texts_without_tokens(tiny, tmp_path):
    assert encoder(tiny).encode([]).shape == (0, 32)
    np.testing.assert_allclose(encoder(tiny).encode_ids(Ragged.from_rows([[]], np.int32)), plain(tiny, [""]), atol=1e-5)
    bare = shutil.copytree(tiny, str(tmp_path / "bare"))
    change(f"{bare}/tokenizer.json", post_processor=None)  # without special tokens
    vectors = encoder(bare).encode(["", "the fox"])
    assert not vectors[0].any()
    assert vectors[1].any()


def test_progress_is_told(tiny):
    done = []
    model = encoder(tiny)
    model._batch_tokens = 100
    model.encode_ids(model.tokenizer.encode(random_texts(50)), done.append)
    assert done == sorted(done)
    assert len(done) > 5
    assert done[-1] == 50


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_a_name_on_the_hub_is_downloaded(tiny, tmp_path, monkeypatch, weights):
    """Safetensors if the repository has them, else PyTorch's file."""
    import fnmatch

    import huggingface_hub

    published = shutil.copytree(tiny, tmp_path / "published")
    if weights == "pytorch_model.bin":
        torch.save(BertModel.from_pretrained(published).state_dict(), published / weights)
        (published / "model.safetensors").unlink()
    (published / "code.py").write_text("raise SystemExit")
    local = tmp_path / "local"

    def download(name, allow_patterns, **_):
        assert name == "some/encoder"
        local.mkdir(exist_ok=True)
        for file in os.listdir(published):
            if any(fnmatch.fnmatch(file, pattern) for pattern in allow_patterns):
                shutil.copy(published / file, local)
        return str(local)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    found = Encoder(find_encoder("some/encoder"), EncoderOptions(name="some/encoder"))
    assert found.files.name == "some/encoder"
    assert weights in os.listdir(local)
    assert "code.py" not in os.listdir(local)
    assert found.encode(["the fox"]).tobytes() == encoder(tiny).encode(["the fox"]).tobytes()


def test_no_code_of_a_model_folder_runs(tiny, tmp_path):
    hostile = shutil.copytree(tiny, tmp_path / "hostile")
    code = {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": "code.Tokenizer"}
    change(hostile / "config.json", auto_map=code)
    (hostile / "code.py").write_text(f"import os; os.mkdir({str(tmp_path / 'executed')!r})")
    assert encoder(str(hostile)).encode(["the fox"]).tobytes() == encoder(tiny).encode(["the fox"]).tobytes()
    change(hostile / "config.json", model_type="unknown")
    with pytest.raises(FarspanError, match="does not describe a known encoder"):
        encoder(str(hostile))
    assert not (tmp_path / "executed").exists()


SCORER = RougeScorer(["rouge1"])
WORD_PIECE = HuggingFaceTokenizer(word_piece().to_str().encode())

sentences = st.lists(
    st.lists(st.sampled_from([*WORDS, "zebra", "日本", "É"]), min_size=1, max_size=9).map(lambda w: " ".join(w) + ". "),
    min_size=1,
    max_size=12,
)


def starts_of(documents):
    return Ragged.from_rows([np.cumsum([0, *map(len, d[:-1])]) for d in documents], np.int64)


def expected(document, tokenizer, room, long_documents):
    pieces = [tokenizer.encode([sentence])[0].tolist() for sentence in document]
    whole = list(chain(*pieces))
    if len(whole) <= room or long_documents == "first":
        return whole[:room]
    rest = ["".join(document[:i] + document[i + 1 :]) for i in range(len(document))]
    scores = [SCORER.score(b, a)["rouge1"].fmeasure for a, b in zip(document, rest, strict=True)]
    kept, left = [], room
    for i in sorted(range(len(document)), key=lambda i: (-scores[i], i)):
        if len(pieces[i]) <= left:
            kept.append(i)
            left -= len(pieces[i])
    best = max(range(len(document)), key=lambda i: (scores[i], -i))
    return list(chain(*(pieces[i] for i in sorted(kept)))) if kept else pieces[best][:room]


@given(st.lists(sentences, max_size=4), st.integers(1, 60), st.sampled_from(["principal", "first"]))
def test_the_best_sentences_that_fit_in_the_order_of_the_document(documents, room, long_documents):
    texts = ["".join(document) for document in documents]
    ids, longer = condense(texts, starts_of(documents), WORD_PIECE, room, long_documents)
    best = [expected(document, WORD_PIECE, room, long_documents) for document in documents]
    assert [row.tolist() for row in ids] == best
    assert longer.tolist() == [len(WORD_PIECE.encode([text])[0]) > room for text in texts]
    assert (ids.lengths <= room).all()


def test_a_chosen_document():
    # ROUGE-1 F1: 2/15 (jump), 4/15 (the, fox), 2/5 (the, fox, jump), 0
    document = ["Some lazy wizards jump. ", "The fox over zebra land. ", "The fox jump. ", "Night and night."]
    pieces = [WORD_PIECE.encode([sentence])[0] for sentence in document]
    sizes = [len(piece) for piece in pieces]

    def kept(room):
        ids, _ = condense(["".join(document)], starts_of([document]), WORD_PIECE, room, "principal")
        return [i for i, piece in enumerate(pieces) if WORD_PIECE.decode(piece) in WORD_PIECE.decode(ids[0])]

    assert kept(sizes[2]) == [2]
    assert kept(sizes[2] + sizes[1] - 1) == [0, 2, 3]  # the second best does not fit; what is left fits
    assert kept(sizes[2] + sizes[1]) == [1, 2]
    assert kept(sizes[2] + sizes[1] + sizes[0]) == [0, 1, 2]


def test_no_texts_and_empty_texts():
    ids, longer = condense([], Ragged.from_rows([], np.int64), WORD_PIECE, 5, "principal")
    assert len(ids) == len(longer) == 0
    ids, longer = condense(["", " "], Ragged.from_rows([[0], [0]], np.int64), WORD_PIECE, 5, "principal")
    assert ids.lengths.tolist() == [0, 0]
    assert longer.tolist() == [False, False]
