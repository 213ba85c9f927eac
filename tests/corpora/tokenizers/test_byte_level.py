"""Byte-level BPE, and decoding with offsets."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from corpora.errors import FarspanError
from corpora.tokenizers import byte_level
from corpora.tokenizers.byte_level import byte_of_character, bytes_of_tokens, decode_utf8, token_bytes
from corpora.tokenizers.decoding import piece_tables
from corpora.tokenizers.huggingface import HuggingFaceTokenizer

_ALPHABET = sorted(byte_of_character(), key=byte_of_character().__getitem__)
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def _split(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _BYTE_LEVEL | {"use_regex": False}]}


def _tokenizer(merges, pre_tokenizer=_BYTE_LEVEL, first_id=0, **model):
    tokens = list(dict.fromkeys([*_ALPHABET, *("".join(pair) for pair in merges)]))
    vocab = {token: first_id + number for number, token in enumerate(tokens)}
    parts = dict.fromkeys(["normalizer", "post_processor", "padding", "truncation"])
    parts |= {"version": "1.0", "added_tokens": [], "decoder": _BYTE_LEVEL, "pre_tokenizer": pre_tokenizer}
    return json.dumps(parts | {"model": {"type": "BPE", "vocab": vocab, "merges": merges, **model}}).encode()


def _engine(*args, **options):
    return HuggingFaceTokenizer(_tokenizer(*args, **options)).engine


def test_alphabet_is_the_librarys():
    assert set(byte_of_character()) == set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_of_character().values()) == list(range(256))


@given(st.lists(st.one_of(st.text(_ALPHABET, max_size=5), st.text(max_size=3)), max_size=10))
def test_bytes_of_tokens(tokens):
    assert bytes_of_tokens(tokens) == [token_bytes(token) for token in tokens]
    within = [token for token in tokens if set(token) <= set(_ALPHABET)]
    assert bytes_of_tokens(within) == [bytes(_ALPHABET.index(character) for character in token) for token in within]


def test_engine_is_chosen_by_the_rules():
    assert _engine([["a", "b"], ["ab", "c"]]) == "gigatoken"
    assert _engine([["a", "b"]], _split(byte_level._GPT4)) == "gigatoken"
    assert _engine([["a", "b"]], ignore_merges=True) == "huggingface"
    assert _engine([["a", "b"]], _split(r"\w+")) == "huggingface"


def test_ids_need_not_follow_the_merges():
    data = json.loads(_tokenizer([["a", "b"], ["c", "d"]]))
    vocab = data["model"]["vocab"]
    vocab["ab"], vocab["cd"], vocab["a"] = vocab["cd"], vocab["a"], vocab["ab"]
    tokenizer = HuggingFaceTokenizer(json.dumps(data).encode())
    assert tokenizer.engine == "gigatoken"
    assert tokenizer.encode(["abcda"])[0].tolist() == [vocab["ab"], vocab["cd"], vocab["a"]]


def test_prefix_space():
    spaced = HuggingFaceTokenizer(_tokenizer([["Ġ", "a"]], _BYTE_LEVEL | {"add_prefix_space": True}))
    assert spaced.engine == "gigatoken"
    ids, starts = spaced.encode_with_starts(["a b", " a", "", "xé"])
    assert starts.values.tolist() == [0, 1, 2, 0, 0, 0, 1, 2]
    assert [len(row) for row in ids] == [3, 1, 0, 4]


@given(data=st.binary(max_size=40))
def test_broken_utf8(data):
    text, characters = decode_utf8(data, np.arange(len(data) + 1))
    assert text == data.decode(errors="replace")
    assert characters[-1] == len(text)
    # Oracle: byte i lies in the last character that decoding the bytes before it, then it, has begun.
    steps = np.diff(characters)
    assert ((steps == 0) | (steps == 1)).all()
    for i in range(len(data)):
        prefix = data[:i]
        if characters[i] != characters[max(i - 1, 0)]:
            assert prefix.decode(errors="replace") == text[: characters[i]]


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
