"""Tests of the files beside exported weights."""

import io
import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import sentencepiece
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
)

from corpora.errors import FarspanError
from corpora.storage.manifest_file import manifest_sha256
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer
from objectives.api.special_tokens import SpecialTokens
from tests.artefacts import make_corpus
from tests.published_tokenizers import bart_files, t5_files, tokenizer_of
from tests.trainer.conversion.models import loaded, tiny_config, tiny_model
from tests.trainer.generation.models import greedy
from tests.trainer.toy import toy_recipe
from trainer.checkpoint.run_files import keep_recipe
from trainer.conversion.convert import convert
from trainer.conversion.export.files import training_section
from trainer.conversion.export.sentencepiece_json import convert_sentencepiece
from trainer.conversion.hugging_face import read_hugging_face, write_hugging_face
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.config import ObjectiveConfig
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.layers.sublayers import EmbeddingConfig, FeedForwardConfig, NormConfig
from trainer.model.patterns import Local, Staggered, Window
from trainer.model.positions import Buckets, Learned, Sinusoidal
from trainer.options import Conversion

TEXT = "three one four one five nine two six five three five eight nine seven"

EDGES = ("<bos>", "<eos>")


def families():
    """Exportable configurations with 64 positions where these are learned."""
    plain = tiny_config(positions=64)
    waves, buckets = Sinusoidal("pegasus_x"), Buckets(8, 16)
    unbiased = replace(plain, heads=replace(plain.heads, bias=False), embedding=EmbeddingConfig(norm=False))
    return {
        "Bart": plain,
        "MBart": replace(plain, norm=NormConfig(placement="pre")),
        "LED": replace(plain, encoder=EncoderConfig(layers=2, positions=Learned(64), attention=Window(4))),
        "PegasusX": replace(
            unbiased,
            norm=NormConfig(placement="pre"),
            encoder=EncoderConfig(layers=2, positions=waves, attention=Staggered(4, 2)),
            decoder=DecoderConfig(layers=1, positions=waves),
        ),
        "LongT5": replace(
            unbiased,
            heads=replace(unbiased.heads, scaled=False),
            norm=NormConfig(placement="pre", kind="rms", eps=1e-6),
            feed_forward=FeedForwardConfig(width=24, activation="gelu_tanh", gated=True, bias=False),
            encoder=EncoderConfig(layers=2, positions=buckets, attention=Local(3)),
            decoder=DecoderConfig(layers=1, positions=buckets),
            initialisation="t5",
        ),
    }


def trained(name: str, frame: tuple[str, ...] = EDGES, files: dict[str, bytes] | None = None):
    """A model as a run leaves it, and the tokenizer of its corpus."""
    files = files or bart_files()
    tokenizer = tokenizer_of(files)
    special = SpecialTokens.append(tokenizer.vocab_size, tokenizer.owned_tokens, ["<mask>", "<doc-sep>"], 2)
    model = tiny_model(families()[name], Vocabulary.of(special, tokenizer.fingerprint, "<eos>", frame))
    lengths = {"source_length": 48, "target_length": 12}
    return replace(model, tokenizer=tokenizer.serialized(), parent={"kind": "farspan.checkpoint", **lengths}), tokenizer


@pytest.mark.parametrize("frame", [EDGES, ("<eos>",), ()])
@pytest.mark.parametrize("files", [bart_files(), t5_files()], ids=["BART", "T5"])
def test_texts_are_framed_as_in_training(tmp_path, frame, files):
    model, corpus = trained("Bart", frame, files)
    write_hugging_face(model, tmp_path / "out")
    text = corpus.encode([TEXT])[0].tolist()
    ids = model.vocabulary.special.ids
    expected = [ids["<bos>"]] * ("<bos>" in frame) + text + [ids["<eos>"]] * ("<eos>" in frame)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(TEXT)["input_ids"] == expected
    assert tokenizer.decode(expected, skip_special_tokens=True).strip() == TEXT
    assert tokenizer.model_max_length == 48


@pytest.mark.parametrize("name", families())
def test_three_lines_summarise_with_the_weights_and_ids_of_training(tmp_path, name):
    ours, corpus = trained(name)
    write_hugging_face(ours, tmp_path / "out")
    ids = ours.vocabulary.special.ids
    expected = torch.tensor([[ids["<bos>"], *corpus.encode([TEXT])[0].tolist(), ids["<eos>"]]])
    shown = torch.zeros(expected.shape, dtype=torch.long)
    shown[:, 0] = 1
    extra = {"global_attention_mask": shown} if name == "LED" else {}

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    written = theirs.generate(**tokenizer(TEXT, return_tensors="pt"), **extra)

    assert type(theirs).__name__ == f"{name}ForConditionalGeneration"
    assert torch.equal(tokenizer(TEXT, return_tensors="pt")["input_ids"], expected)
    model, target = loaded(ours), expected[:, :7]
    with torch.no_grad():
        memory = model.encode(expected, global_positions=shown.bool() if name == "LED" else None)
        found = model.logits(model.decode(target, memory))
        logits = theirs(input_ids=expected, decoder_input_ids=target, **extra).logits
    torch.testing.assert_close(found, logits, atol=1e-5, rtol=1e-5)
    assert written.shape[1] <= 12, "the longest target"
    if name != "LED":
        real, end = torch.ones_like(expected).bool(), ids["<eos>"]
        said = greedy(model, expected, real, start=end, end=end, pad=ids["<pad>"], max_tokens=11)
        assert torch.equal(written[:, 1:], said)


def test_files_are_readable_and_the_card_says_what_the_model_expects(tmp_path):
    for name in ("LED", "Bart"):
        model, _ = trained(name)
        write_hugging_face(model, tmp_path / name)
        card = (tmp_path / name / "README.md").read_text()
        assert ("global_attention_mask" in card) == (name == "LED")
        assert "the beginning-of-text token before a text and the end-of-text token behind a text" in card
        assert "48 tokens" in card
    write_model_folder(model, tmp_path / "ours")
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > 12
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o644"}


def test_a_token_that_framed_texts_must_be_the_tokenizers(tmp_path):
    model, _ = trained("Bart")
    special = SpecialTokens({**model.vocabulary.special.ids, "<bos>": 77}, 80)
    model = replace(model, vocabulary=replace(model.vocabulary, special=special))
    model = replace(tiny_model(model.config, model.vocabulary), tokenizer=model.tokenizer)
    with pytest.raises(FarspanError, match="no token 77, which framed texts"):
        write_hugging_face(model, tmp_path / "out")


SETTINGS = {
    "num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "max_length": 30, "min_length": 5,
    "early_stopping": True, "forced_bos_token_id": 0, "forced_eos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_an_imported_models_settings_survive_import_and_export(tmp_path, where):
    sizes: dict[str, Any] = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
             "max_position_embeddings": 32}  # fmt: skip
    theirs = BartForConditionalGeneration(BartConfig(vocab_size=tokenizer_of(bart_files()).vocab_size, **sizes))
    theirs.save_pretrained(tmp_path / "bart")
    file = tmp_path / "bart" / where
    (tmp_path / "bart" / "generation_config.json").unlink()
    values = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**values, **SETTINGS}))
    for name, content in bart_files().items():
        (tmp_path / "bart" / name).write_bytes(content)
    convert(tmp_path / "bart", tmp_path / "ours", Conversion())
    convert(tmp_path / "ours", tmp_path / "again", Conversion(to="huggingface"))
    found = GenerationConfig.from_pretrained(tmp_path / "again").to_dict()
    assert {name: found.get(name) for name in SETTINGS} == SETTINGS
    first, second = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("bart", "again"))
    same = first.keys() & second.keys() - {"transformers_version", "dtype"}
    assert {name: second[name] for name in same} == {name: first[name] for name in same}
    assert read_hugging_face(tmp_path / "again").generation == read_hugging_face(tmp_path / "bart").generation


def test_recipe_data_and_scores(tmp_path):
    corpus = make_corpus(str(tmp_path / "books"))
    recipe = toy_recipe(tmp_path / "run", steps=60)
    data = replace(recipe.data, corpus=corpus, objective=ObjectiveConfig(name="span"))
    keep_recipe(asdict(replace(recipe, data=data)), {}, tmp_path / "run")
    lines = [
        {"step": 30, "held_out_loss": 4.0},
        {"step": 60, "loss": 3.0, "learning_rate": 0.1},
        {"step": 60, "held_out_loss": 3.5},
    ]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "run" / "starts.jsonl").write_text('{"step": 0, "recipe": "tiny"}\n')
    text = training_section(tmp_path / "run")
    assert "Recipe `tiny`: 60 updates of 6 sequences" in text
    assert f"| `books`, span | `{manifest_sha256(corpus)}` |" in text
    assert "| held_out_loss | 3.5000 | 60 |" in text
    assert "3.0000" not in text
    assert str(tmp_path) not in text
    assert training_section(tmp_path / "run" / "checkpoints" / "step-00000060") == text


def test_another_model_has_none(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert training_section(tmp_path / "a" / "b") == ""


LINES = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "A model reads 16,384 tokens; another reads 4,096 of them at once.",
    "Documents become sequences, sequences become batches, batches become updates.",
    "  Two  spaces, a tab\tand ünïcode: naïve café, ﬁne.  ",
]

LOSSLESS = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": False,
    "byte_fallback": True,
}


def trained_sentencepiece(**options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3),
        model_writer=model,
        vocab_size=400,
        hard_vocab_limit=False,
        minloglevel=2,
        pad_id=3,
        **options,
    )
    return model.getvalue()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "options",
    [{}, {"byte_fallback": True}, LOSSLESS, {"user_defined_symbols": ["<name>"], "control_symbols": ["<sent>"]}],
    ids=["plain", "bytes", "lossless", "symbols"],
)
def test_ids_and_texts_are_those_of_sentencepiece(kind, options):
    data = trained_sentencepiece(model_type=kind, **options)
    ours = SentencePieceTokenizer(data)
    theirs = convert_sentencepiece(data, ours.owned_tokens.values())
    texts = [*LINES, "", " ", "日本語 and\nnew lines", "x" * 50]
    for text, ids in zip(texts, ours.encode(texts), strict=True):
        assert theirs.encode(text).ids == ids.tolist(), text
        if "byte_fallback" in options:  # else an unknown character is decoded in two ways
            assert theirs.decode(ids.tolist()) == ours.decode(ids), text
    assert theirs.get_vocab_size() == ours.vocab_size


@pytest.mark.parametrize(
    "options", [{"model_type": "word"}, {"model_type": "char"}, {"treat_whitespace_as_suffix": True}]
)
def test_what_the_library_cannot_express_is_not_converted(options):
    assert convert_sentencepiece(trained_sentencepiece(**options), []) is None


@pytest.mark.parametrize("frame", [("<bos>", "<eos>"), ("<eos>",)])
def test_an_exported_model_is_loaded_with_the_tokenizer_of_its_corpus(tmp_path, frame):
    corpus = SentencePieceTokenizer(trained_sentencepiece(**LOSSLESS))
    special = SpecialTokens.append(corpus.vocab_size, corpus.owned_tokens, ["<mask>", "<doc-sep>"], 2)
    model = tiny_model(tiny_config(), Vocabulary.of(special, corpus.fingerprint, "<eos>", frame))
    write_hugging_face(replace(model, tokenizer=corpus.serialized()), tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    begin = [special["<bos>"]] * ("<bos>" in frame)
    for text in LINES:
        ids = [*begin, *corpus.encode([text])[0].tolist(), special["<eos>"]]
        assert tokenizer(text)["input_ids"] == ids
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.convert_tokens_to_ids("<doc-sep>") == special["<doc-sep>"]
