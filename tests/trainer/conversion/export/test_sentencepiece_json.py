"""A SentencePiece model in the tokenizers library gives the ids and texts of the SentencePiece library."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import sentencepiece
from transformers import AutoTokenizer

from corpora.tokenizers.sentencepiece import SentencePieceTokenizer
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.conversion.models import tiny_config, tiny_model
from trainer.conversion.export.sentencepiece_json import convert_sentencepiece
from trainer.conversion.hugging_face import write_hugging_face
from trainer.conversion.vocabulary import Vocabulary

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


def trained(**options) -> bytes:
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
    data = trained(model_type=kind, **options)
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
    assert convert_sentencepiece(trained(**options), []) is None


@pytest.mark.parametrize("frame", [("<bos>", "<eos>"), ("<eos>",)])
def test_an_exported_model_is_loaded_with_the_tokenizer_of_its_corpus(tmp_path, frame):
    corpus = SentencePieceTokenizer(trained(**LOSSLESS))
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
