"""The merges for which tiktoken may stand in for Hugging Face, and equal ids there."""

from __future__ import annotations

import json
import time
import unicodedata

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.tokenizers import byte_level
from corpora.tokenizers.byte_level import byte_of_character, bytes_of_tokens, decode_utf8, tiktoken_engine, token_bytes
from corpora.tokenizers.huggingface import HuggingFaceTokenizer

FAST = ("gigatoken", "tiktoken")
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


def test_engine_is_chosen_by_the_merges():
    assert _engine([["a", "b"], ["ab", "c"]]) in FAST
    # "abc" is listed as ab + c, but b and c join first: Hugging Face never makes it, tiktoken would
    assert _engine([["b", "c"], ["a", "b"], ["ab", "c"]]) == "huggingface"
    # two ways to one token
    assert _engine([["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]) == "huggingface"
    assert _engine([["a", "b"]], ignore_merges=True) == "huggingface"
    assert _engine([["a", "b"]], _split(r"\w+")) == "huggingface"
    assert _engine([["a", "b"]], _split(byte_level._GPT4)) in FAST


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_merges_give_hugging_faces_ids(data):
    """Merges drawn at random, sound or not: where tiktoken is chosen, it agrees."""
    tokens, merges = list("abc"), []
    for _ in range(data.draw(st.integers(0, 12))):
        pair = [data.draw(st.sampled_from(tokens)), data.draw(st.sampled_from(tokens))]
        if pair not in merges and len("".join(pair)) <= 8:
            merges.append(pair)
            tokens.append("".join(pair))
    encoded = _tokenizer(merges)
    reference = tokenizers.Tokenizer.from_str(encoded.decode())
    tokenizer = HuggingFaceTokenizer(encoded)
    for text in data.draw(st.lists(st.text("abc", max_size=24), min_size=5, max_size=20)):
        assert tokenizer.encode([text])[0].tolist() == reference.encode(text).ids


def test_ids_need_not_follow_the_merges():
    data = json.loads(_tokenizer([["a", "b"], ["c", "d"]]))
    vocab = data["model"]["vocab"]
    vocab["ab"], vocab["cd"], vocab["a"] = vocab["cd"], vocab["a"], vocab["ab"]
    tokenizer = HuggingFaceTokenizer(json.dumps(data).encode())
    assert tokenizer.engine in FAST
    assert tokenizer.encode(["abcda"])[0].tolist() == [vocab["ab"], vocab["cd"], vocab["a"]]


def test_prefix_space():
    spaced = HuggingFaceTokenizer(_tokenizer([["Ġ", "a"]], _BYTE_LEVEL | {"add_prefix_space": True}))
    assert spaced.engine in FAST
    ids, starts = spaced.encode_with_starts(["a b", " a", "", "xé"])
    assert starts.values.tolist() == [0, 1, 2, 0, 0, 0, 1, 2]
    assert [len(row) for row in ids] == [3, 1, 0, 4]


def _probe(characters, pattern):
    """Ids of texts in which every character's class decides what it merges with; by both engines."""
    merges = [[left, _ALPHABET[byte]] for left in ("a", "1", ".", "ĉ", "Ċ", "Ġ") for byte in range(128, 256)]
    config = json.loads(_tokenizer(merges, _split(pattern)))
    reference = tokenizers.Tokenizer.from_str(json.dumps(config))
    engine = tiktoken_engine(config, reference)
    assert engine is not None
    for start in range(0, len(characters), 5_000):
        block = characters[start : start + 5_000]
        text = "".join(f"a{c}1{c}.{c}\t{c}\n{c} {c}a'{c} " for c in block)
        yield engine.encode(text).tolist(), reference.encode(text).ids


def test_probe_sees_the_class_of_a_character():
    pairs = [next(iter(_probe([character], byte_level._GPT2)))[0] for character in "é¼…"]
    assert len({tuple(np.array(ids) >= 256) for ids in pairs}) == 3


@pytest.mark.parametrize("pattern", byte_level._PATTERNS)
def test_regex_engines_agree_on_classes(pattern):
    ranges = [range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x13000, 3), range(0x1D000, 0x20000, 3)]
    characters = [chr(c) for part in ranges for c in part]
    for ours, theirs in _probe(characters, pattern):
        assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("pattern", byte_level._PATTERNS)
def test_regex_engines_agree_on_every_code_point(pattern):
    characters = [chr(c) for c in range(0x80, 0x110000) if unicodedata.category(chr(c)) != "Cs"]
    for ours, theirs in _probe(characters, pattern):
        assert ours == theirs


@pytest.mark.parametrize("unit", ["a", " ", "\n", ".", "世", "ab", "a "])
def test_long_runs(byte_level, unit):
    """Equal ids, and time that grows as the text does: a quadratic engine would need minutes."""
    text = unit * (300_000 // len(unit)) + "x"
    reference = tokenizers.Tokenizer.from_str(byte_level.serialized()["tokenizer.json"].decode())
    begin = time.process_time()
    ids = byte_level.encode([text])[0]
    assert time.process_time() - begin < 20
    assert ids.tolist() == reference.encode(text).ids


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
