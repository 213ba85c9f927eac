"""SentencePiece models against the library: starts, control symbols, fingerprint."""

from __future__ import annotations

import io
import struct

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from corpora.tokenizers import sentencepiece as our_sentencepiece
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer, fields, message
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


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit of a byte says that more follow."""
    data = []
    while True:
        value, low = divmod(value, 128)
        data.append(low | (128 if value else 0))
        if not value:
            return bytes(data)


def encoded(number: int, value: int | float | bytes) -> bytes:
    """A field as protoc writes it: an integer, a double, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


numbers = st.integers(1, (1 << 29) - 1)
values = st.one_of(st.integers(0, (1 << 64) - 1), st.floats(allow_nan=False), st.binary(max_size=300))


@given(st.lists(st.tuples(numbers, values), max_size=8))
def test_every_field_is_read_back_in_order(pairs):
    data = b"".join(encoded(number, value) for number, value in pairs)
    expected = [(number, struct.pack("<d", v) if isinstance(v, float) else v) for number, v in pairs]
    assert list(fields(data)) == expected


def test_floats_of_four_bytes():
    assert list(fields(varint(2 << 3 | 5) + struct.pack("<f", -1.5))) == [(2, struct.pack("<f", -1.5))]


def test_other_wire_types_are_refused():
    with pytest.raises(ValueError, match="field 4 has wire type 3"):
        list(fields(varint(4 << 3 | 3)))


def test_a_number_is_no_message():
    assert message(b"text") == b"text"
    with pytest.raises(ValueError, match="a message is expected"):
        message(7)
