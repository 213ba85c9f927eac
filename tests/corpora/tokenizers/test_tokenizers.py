"""Laws of every tokenizer, and damaged files of tokenizers."""

import json
import pickle
import random
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import sentencepiece
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.tokenizers.load import load_tokenizer, load_tokenizer_of
from corpora.tokenizers.protocol import special_ids
from corpora.tokenizers.tokenizer_json import load, parse
from corpora.tokenizers.training import KINDS, train_sentencepiece, train_tokenizer
from tests.corpora.tokenizers.conftest import sample_texts, sentence_piece_model

FIXTURES = ["byte_level", "sentence_pieces", "word_piece", "metaspace", "byte_fallback"]
LOSSLESS = ["byte_level", "sentence_pieces"]
ODD = [
    *("", " ", "   ", "\n", "a\n\nb", " leading", "trailing ", "tab\tand\r\nreturn", "x" * 5_000, " " * 3_000 + "x"),
    *("we'll they've 'tis 1984's", "naïve café e\u0301", "世界 地図。中文", "👩‍👩‍👧 🇫🇷 flags", "שלום مرحبا"),
    *("\x00\x01\x7f\x85", "\u2028\u2029\u00a0\u3000", "\ufeffbom", "<s>the</s> <pad> [SEP] [MASK]", "�", "½ ² Ⅷ ١٢"),
    *("\u2581", "\u2581\u2581 x\u2581y", " \u2581the river\u2581\n"),
    "".join(map(chr, range(0xFDD0, 0xFDEF))) + "\u2581",
]
characters = st.characters(exclude_categories=["Cs"])
texts = st.one_of(
    st.sampled_from(ODD), st.text(st.one_of(characters, st.sampled_from(" \u2581\ufdd0the")), max_size=60)
)
some = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=FIXTURES)
def tokenizer(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=LOSSLESS)
def lossless(request):
    return request.getfixturevalue(request.param)


def library(tokenizer):
    """(encode, decode) by the library itself, from the saved bytes."""
    files = tokenizer.serialized()
    if "tokenizer.model" in files:
        processor = sentencepiece.SentencePieceProcessor(model_proto=files["tokenizer.model"])
        return processor.EncodeAsIds, processor.Decode
    reference = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    reference.encode_special_tokens = True
    return (
        lambda text: reference.encode(text, add_special_tokens=False).ids,
        lambda ids: reference.decode(ids, skip_special_tokens=False),
    )


@given(batch=st.lists(texts, max_size=4))
@some
def test_ids_are_the_librarys(tokenizer, batch):
    encode, _ = library(tokenizer)
    # the library's Unigram model takes the text of a special token for the token (test_special_pieces.py)
    batch = [text.replace("<pad>", "").replace("</s>", "").replace("\u2581", "") for text in batch]
    ids = tokenizer.encode(batch)
    assert ids.values.dtype == np.int32
    assert [row.tolist() for row in ids] == [encode(text) for text in batch]


@given(text=texts, data=st.data())
@some
def test_text_is_the_librarys_for_any_ids(tokenizer, text, data):
    _, decode = library(tokenizer)
    ids = tokenizer.encode([text])[0]
    cut = data.draw(st.integers(0, len(ids)))
    loose = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12))
    for part in (ids, ids[cut:], ids[:cut], np.array(loose, np.uint16)):
        assert tokenizer.decode(part) == decode(part.tolist())


@given(text=texts, data=st.data())
@some
def test_offsets_lead_back_to_tokens(tokenizer, text, data):
    ids = tokenizer.encode([text])[0]
    ids = ids[data.draw(st.integers(0, len(ids))) :]
    text, starts = tokenizer.decode_with_offsets(ids)
    assert starts.dtype == np.int64
    assert len(starts) == len(ids)
    if len(ids):
        assert starts.min() >= 0
        assert starts.max() <= len(text)
        assert (np.diff(starts) >= 0).all()


@given(text=texts)
@some
def test_lossless_kinds_give_the_text_back(lossless, text):
    assert lossless.decode(lossless.encode([text])[0]) == text


@given(batch=st.lists(texts, min_size=1, max_size=4))
@some
def test_starts_are_bytes_of_the_original(tokenizer, batch):
    ids, starts = tokenizer.encode_with_starts(batch)
    assert [row.tolist() for row in ids] == [row.tolist() for row in tokenizer.encode(batch)]
    assert starts.values.dtype == np.int64
    for text, row in zip(batch, starts, strict=True):
        assert len(row) == 0 or 0 <= row[0] <= row[-1] <= len(text.encode())
        assert (np.diff(row) >= 0).all()


def test_save_and_load(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "tokenizer"))
    for again in (load_tokenizer(str(tmp_path / "tokenizer")), pickle.loads(pickle.dumps(tokenizer))):
        assert again.fingerprint == tokenizer.fingerprint
        assert again.owned_tokens == tokenizer.owned_tokens
        assert again.engine == tokenizer.engine
        assert again.encode(["the river's 世"]).values.tolist() == tokenizer.encode(["the river's 世"]).values.tolist()


@pytest.mark.parametrize("ids", [[-1], [10_000_000]])
def test_ids_outside_the_vocabulary(tokenizer, ids):
    with pytest.raises(FarspanError, match=f"token id {ids[0]} at position 1"):
        tokenizer.decode([0, *ids])


TEXTS = ["The river <s> runs, 世界 1984 \n naïve ﬁ ① Ⅷ e\u0301 １２", " " * 30 + "x", "\x00é株式会社㍿ｶﾞ", ""]


def damaged(data: bytes, seed: int) -> bytes:
    """Cut short, or with one to three bits turned over."""
    draw = random.Random(seed)
    flips = draw.randrange(4)
    if not flips:
        return data[: draw.randrange(len(data))]
    broken = bytearray(data)
    for _ in range(flips):
        broken[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(broken)


def check(path, data: bytes, seeds: range) -> int:
    """Number of damaged files that are refused."""
    refused = 0
    for seed in seeds:
        path.write_bytes(damaged(data, seed))
        try:
            tokenizer = load_tokenizer(str(path))
        except FarspanError as error:
            message = str(error)
            assert message.startswith(f"tokenizer {path}: "), (seed, message)
            assert message.isprintable(), (seed, message)
            assert len(message) < 400, (seed, message)
            refused += 1
            continue
        for row in tokenizer.encode_with_starts(TEXTS)[0]:
            tokenizer.decode(row)
    return refused


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        *((kind, 40) for kind in ("sentence_pieces", "byte_level", "metaspace")),
        *(pytest.param(kind, 200, marks=pytest.mark.slow) for kind in FIXTURES),
    ],
)
def test_flips_and_cuts(kind, seeds, request, tmp_path):
    data = next(iter(request.getfixturevalue(kind).serialized().values()))
    assert check(tmp_path / "tokenizer", data, range(seeds)) > seeds // 4


def test_a_piece_that_is_no_text(sentence_pieces, tmp_path):
    data = sentence_pieces.serialized()["tokenizer.model"]
    path = tmp_path / "spiece.model"
    path.write_bytes(data.replace("世".encode(), b"\xe4\xb8\x16", 1))
    with pytest.raises(FarspanError, match=r"spiece.model: not a SentencePiece model, or a damaged one \(.*\)"):
        load_tokenizer(str(path))


@pytest.mark.slow
def test_flips_in_a_table_of_characters(tmp_path):
    """Compiled, of the characters that the model replaces: 240 KB."""
    normalising = sentence_piece_model(normalization_rule_name="nmt_nfkc")
    assert check(tmp_path / "tokenizer", normalising, range(200)) > 50


# Loading of tokenizers, and the formats of their files.
def test_wrong_files(tmp_path):
    for name, data in {"a.json": b"{", "b.json": b"{}", "c.model": b"\x80\x04K\x01.", "d.model": b""}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FarspanError, match=name):
            load_tokenizer(tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FarspanError, match=r"0 \.model files"):
        load_tokenizer(str(tmp_path / "empty"))
    with pytest.raises(FarspanError, match="no such file"):
        load_tokenizer(str(tmp_path / "nowhere.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(FarspanError, match=r"the folder holds no tokenizer\.json, .* copy the model's tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_folders_that_are_missing_are_no_names_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    with pytest.raises(FarspanError, match=r"^tokenizer my/tokenizer: no such file or folder$"):
        load_tokenizer("my/tokenizer")
    with pytest.raises(FarspanError, match="has no folder `tokenizer`"):
        load_tokenizer_of(str(tmp_path))


def test_hub_name_out_of_reach(monkeypatch):
    import transformers

    refuse = Mock(side_effect=OSError("We couldn't connect\nto the hub"))
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    with pytest.raises(FarspanError, match=r"facebook/bart-base.*couldn't connect.*local"):
        load_tokenizer("facebook/bart-base")


def test_folder_without_json_goes_through_transformers(byte_level, tmp_path):
    model = json.loads(byte_level.serialized()["tokenizer.json"])["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(" ".join(pair) for pair in model["merges"]))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BartTokenizer"}')
    loaded = load_tokenizer(str(tmp_path))
    assert loaded.engine == "gigatoken"
    assert loaded.owned_tokens["<eos>"] == 2
    assert loaded.encode(["the river's"]).values.tolist() == byte_level.encode(["the river's"]).values.tolist()


def test_equal_contents_are_loaded_once(tmp_path, byte_level):
    for name in ("a", "b"):
        byte_level.save(str(tmp_path / name))
    assert load_tokenizer(str(tmp_path / "a")) is load_tokenizer(str(tmp_path / "b"))
    tokens = json.loads((tmp_path / "b" / "special_tokens_map.json").read_bytes())
    (tmp_path / "b" / "special_tokens_map.json").write_text(json.dumps(tokens | {"eos_token": "<pad>"}))
    assert load_tokenizer(str(tmp_path / "a")) is not load_tokenizer(str(tmp_path / "b"))


def model(prefix: str, merges: list) -> bytes:
    vocab = {piece: number for number, piece in enumerate(["a", "b", "##b", "ab"])}
    made = {"type": "BPE", "vocab": vocab, "merges": merges, "continuing_subword_prefix": prefix}
    return json.dumps({"model": made}).encode()


@pytest.mark.parametrize("merges", [[["a", "##b"]], ["a ##b"], []])
def test_a_prefix_of_all_merges_is_kept(merges):
    tokenizer, _, _ = load({**parse(model("##", merges)), "added_tokens": []})
    assert tokenizer.encode("ab").tokens == (["ab"] if merges else ["a", "##b"])


@pytest.mark.parametrize("merge", [["a", "b"], "a b", ["a"], [], None, 7])
def test_a_merge_without_the_prefix_is_refused(merge):
    """The library would end the process."""
    with pytest.raises(FarspanError, match=r"merge .* has no continuing_subword_prefix '##'; restore the file$"):
        parse(model("##", [["a", "##b"], merge]))


# Training of tokenizers.
SIZE = 380


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_train_the_same_tokenizer(kind, tmp_path):
    first = train_tokenizer(kind, iter(sample_texts(80)), SIZE, str(tmp_path / "a"))
    again = train_tokenizer(kind, iter(sample_texts(80)), SIZE, str(tmp_path / "b"))
    assert first.serialized() == again.serialized()
    assert load_tokenizer(str(tmp_path / "a")).fingerprint == first.fingerprint
    assert first.vocab_size <= SIZE
    assert set(first.owned_tokens) == {"<pad>", "<bos>", "<eos>", "<unk>"}


@pytest.mark.parametrize(
    ("kind", "texts", "size", "message"),
    [
        ("bpe", ["a"], SIZE, ", ".join(KINDS)),
        ("byte-level-bpe", ["", ""], SIZE, "no text"),
        ("byte-level-bpe", ["a"], 256, "at least 260"),
        ("sentencepiece", ["a b c"], 5_000, "too high"),
        ("sentencepiece", ["a b c"], 100, "vocab_size 100"),
    ],
)
def test_bad_input(kind, texts, size, message, tmp_path):
    with pytest.raises(FarspanError, match=message):
        train_tokenizer(kind, texts, size, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    (tmp_path / "precious").touch()
    with pytest.raises(FarspanError, match="is not empty and holds no tokenizer; give a new one"):
        train_tokenizer("byte-level-bpe", ["a"], SIZE, str(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_training_again_keeps_the_same_tokenizer_and_refuses_another(kind, tmp_path):
    folder = str(tmp_path / "tokenizer")
    first = train_tokenizer(kind, sample_texts(80), SIZE, folder)
    files = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()}
    assert train_tokenizer(kind, sample_texts(80), SIZE, folder).fingerprint == first.fingerprint
    with pytest.raises(FarspanError, match=r"holds another tokenizer \(fingerprint \w{16}, not \w{16}\)"):
        train_tokenizer(kind, sample_texts(40), SIZE, folder)
    with pytest.raises(FarspanError, match=r"holds another tokenizer \(\d+ ids, more than 300\); give a new folder"):
        train_tokenizer(kind, iter(()), 300, folder)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()} == files


def test_special_ids_are_those_of_no_text():
    assert special_ids({"<pad>": 5, "<unk>": 2, "<bos>": 0, "<mask>": 9, "[CLS]": 0}).tolist() == [0, 5, 9]
    assert special_ids({"<unk>": 2}).tolist() == []


def test_long_lines_are_learnt_from():
    text = "zebra quagga " * 5_000  # one line, longer than SentencePiece reads by default
    tokenizer = train_sentencepiece([text, *sample_texts(80)], 380)
    assert len(tokenizer.encode(["zebra quagga"])[0]) <= 4
