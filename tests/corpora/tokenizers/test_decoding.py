"""Tables of pieces against the decoders of the tokenizers library, and the places of tokens in their text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from corpora.errors import FarspanError
from corpora.tokenizers.decoding import piece_tables

BYTES = [f"<0x{byte:02X}>" for byte in "aé世".encode()]
TOKENS = ["▁the", "▁", "▁▁", "river", "##ing", "##", ".", " .", " n't", "é世", "<0xZZ>", *BYTES, "", "a▁b"]
LLAMA = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
DECODERS = {
    "metaspace": decoders.Metaspace(),
    "metaspace without a prefix": decoders.Metaspace(prepend_scheme="never"),
    "word pieces": decoders.WordPiece(cleanup=False),
    "clean word pieces": decoders.WordPiece(),
    "bytes": decoders.Sequence(LLAMA),
}


def config(decoder) -> dict:
    """The decoder as tokenizer.json has it."""
    return json.loads(decoder.__getstate__())


ids = st.lists(st.integers(0, len(TOKENS) - 1), max_size=12)


@pytest.mark.parametrize("name", DECODERS)
@given(ids=ids)
@settings(max_examples=100)
def test_the_text_is_the_librarys(name, ids):
    text, starts = piece_tables(config(DECODERS[name]), TOKENS).decode(np.array(ids, np.int64))
    assert text == DECODERS[name].decode([TOKENS[number] for number in ids])
    assert len(starts) == len(ids)


@given(ids=ids)
def test_without_a_decoder_tokens_are_joined_by_spaces(ids):
    text, starts = piece_tables(None, TOKENS).decode(np.array(ids, np.int64))
    assert text == " ".join(TOKENS[number] for number in ids)
    ends = np.cumsum([len(TOKENS[number]) + 1 for number in ids]) - 1
    assert starts.tolist() == [0, *ends.tolist()][: len(ids)]


@pytest.mark.parametrize("name", ["metaspace", "word pieces", "clean word pieces"])
@given(ids=ids)
def test_a_token_begins_where_the_text_before_it_ends(name, ids):
    tables = piece_tables(config(DECODERS[name]), TOKENS)
    starts = tables.decode(np.array(ids, np.int64))[1]
    assert starts.tolist() == [len(tables.decode(np.array(ids[:count], np.int64))[0]) for count in range(len(ids))]


def test_bytes_begin_at_their_character():
    tables = piece_tables(config(DECODERS["bytes"]), TOKENS)
    numbers = [TOKENS.index(token) for token in ("▁the", *BYTES, "river", BYTES[1], ".")]
    text, starts = tables.decode(np.array(numbers))
    assert text == "theaé世river\ufffd."
    assert starts.tolist() == [0, 3, 4, 4, 5, 5, 5, 6, 11, 12]


def test_a_text_is_stripped_at_both_ends_and_starts_stay_inside():
    """By hand: the library ends the process with a panic where a text has nothing but what is stripped."""
    tables = piece_tables(config(decoders.Sequence([decoders.Fuse(), decoders.Strip("▁", 2, 1)])), TOKENS)
    text, starts = tables.decode(np.array([TOKENS.index(token) for token in ("▁", "▁▁", "river", "▁▁")]))
    assert (text, starts.tolist()) == ("▁river▁", [0, 0, 1, 6])
    text, starts = tables.decode(np.array([TOKENS.index("▁")]))
    assert (text, starts.tolist()) == ("", [0])


@pytest.mark.parametrize(
    "steps",
    [
        [decoders.CTC()],
        [decoders.ByteFallback(), decoders.Replace("▁", " ")],
        [decoders.Fuse(), decoders.WordPiece()],
        [decoders.Strip(" ", 1, 0), decoders.Fuse()],
        [decoders.ByteLevel(), decoders.Fuse()],
    ],
    ids=["unknown", "after bytes", "after fuse", "strip of each piece", "byte level with more"],
)
def test_other_decoders_are_refused(steps):
    with pytest.raises(FarspanError, match=r"tokenizer\.json: decoder '\w+' is not supported .*; use a tokenizer with"):
        piece_tables(config(decoders.Sequence(steps)), TOKENS)
