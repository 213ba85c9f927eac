"""SentencePiece models against the library: starts, control symbols, fingerprint."""

from __future__ import annotations

import io

import pytest
import sentencepiece
from hypothesis import given

from corpora.tokenizers import sentencepiece as our_sentencepiece
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer
from objectives.api.special_tokens import SpecialTokens
from tests.corpora.tokenizers.conftest import sample_texts
from tests.corpora.tokenizers.test_tokenizers import some, texts


@given(text=texts)
@some
def test_sentencepiece_starts_are_its_own_offsets(sentence_pieces, text):
    processor = sentencepiece.SentencePieceProcessor(model_proto=sentence_pieces.serialized()["tokenizer.model"])
    # the library takes U+2581 for a space, so another character of three bytes
    offsets = processor.EncodeAsOffsetMapping(text.replace("\u2581", "\ufdef"), return_bytes=True)["offsets"]
    assert sentence_pieces.encode_with_starts([text])[1][0].tolist() == [start for start, _ in offsets]


@pytest.mark.parametrize("rule", ["identity", "nmt_nfkc"])
def test_sentencepiece_starts_of_long_texts(rule, monkeypatch):
    """A long text goes through the normaliser in slices; the starts must not show it."""
    monkeypatch.setattr(our_sentencepiece, "_SLICE", 40)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in sample_texts() for line in text.split("\n")),
        model_writer=model,
        vocab_size=380,
        byte_fallback=True,
        normalization_rule_name=rule,
        remove_extra_whitespaces=rule != "identity",
        minloglevel=2,
    )
    tokenizer = SentencePieceTokenizer(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    text = "  " + "  \n ".join([*sample_texts(10), "ﬁ ① e\u0301  a\u3000 b", "世" * 60]) + "  "
    offsets = processor.EncodeAsOffsetMapping(text, return_bytes=True)["offsets"]
    assert tokenizer.encode_with_starts([text])[1][0].tolist() == [start for start, _ in offsets]
    assert len(tokenizer._origins(text.encode())) == len(processor.Normalize(text.encode()))


def test_sentencepiece_controls_are_special_and_user_symbols_are_text():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in sample_texts() for line in text.split("\n")),
        model_writer=model,
        vocab_size=380,
        byte_fallback=True,
        control_symbols=["[MASK]", "<doc-sep>"],
        user_defined_symbols=["<doc-s>", "<mask>"],
        minloglevel=2,
    )
    tokenizer = SentencePieceTokenizer(model.getvalue())
    piece = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).PieceToId
    roles = {"<unk>": piece("<unk>"), "<bos>": piece("<s>"), "<eos>": piece("</s>"), "<mask>": piece("[MASK]")}
    assert tokenizer.owned_tokens == {**roles, "<doc-sep>": piece("<doc-sep>")}
    ids = tokenizer.encode(["a <doc-s> b <mask> c <doc-sep> d [MASK] e </s>"])[0].tolist()
    assert {piece("<doc-s>"), piece("<mask>")} <= set(ids)
    assert not set(tokenizer.owned_tokens.values()) & set(ids)
    special = SpecialTokens.append(tokenizer.vocab_size, tokenizer.owned_tokens, ["<doc-sep>", "<doc-s>", "<mask>"])
    assert (special["<doc-sep>"], special["<mask>"]) == (piece("<doc-sep>"), piece("[MASK]"))
    assert special["<doc-s>"] >= tokenizer.vocab_size


def test_sentencepiece_fingerprint_ignores_training_options(sentence_pieces):
    data = sentence_pieces.serialized()["tokenizer.model"]
    note = b"/some/where/else.txt"
    same = SentencePieceTokenizer(data + b"\x12" + bytes([len(note) + 2]) + b"\x0a" + bytes([len(note)]) + note)
    assert same.fingerprint == sentence_pieces.fingerprint
    rule = b"\x1a\x02\x18\x00"  # normalizer_spec { add_dummy_prefix: false }
    assert SentencePieceTokenizer(data + rule).fingerprint != sentence_pieces.fingerprint
