"""Byte-level BPE: its alphabet and decoding with offsets, and gigatoken, whose ids are Hugging Face's."""

import json
import os
import time
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

from corpora.errors import FarspanError
from corpora.tokenizers import decoding, gigatoken_engine, huggingface
from corpora.tokenizers.decoding import byte_of_character, decode_utf8, piece_tables, token_bytes
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
    for token in tokens:
        within = set(token) <= set(_ALPHABET)
        assert token_bytes(token) == (bytes(map(_ALPHABET.index, token)) if within else token.encode())


def test_engine_is_chosen_by_the_rules():
    assert _engine([["a", "b"], ["ab", "c"]]) == "gigatoken"
    assert _engine([["a", "b"]], _split(decoding._GPT4)) == "gigatoken"
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


# The ids of gigatoken are Hugging Face's, for every text that it is given.
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "it's", "I'LL"]
SPECIAL += ["  ", "\n\n", "\t", "\x00", "e\u0301", "１２", "½", "👩\u200d👧"]
texts = st.one_of(
    st.text(max_size=60),
    st.text(st.characters(max_codepoint=0x52F), max_size=60),
    st.lists(st.one_of(st.sampled_from(SPECIAL), st.text("ab .,'1é世", max_size=6)), max_size=12).map("".join),
)


def engine_and_reference(data):
    config = json.loads(data)
    reference = tokenizers.Tokenizer.from_str(json.dumps(config))
    reference.encode_special_tokens = True
    return gigatoken_engine.gigatoken_engine(config, reference), reference


@pytest.fixture(scope="module")
def both(byte_level):
    data = byte_level.serialized()["tokenizer.json"]
    tokenizer = HuggingFaceTokenizer(data)
    assert tokenizer.engine == "gigatoken"
    reference = tokenizers.Tokenizer.from_str(data.decode())
    reference.encode_special_tokens = True
    return tokenizer, reference


def test_it_is_loaded_when_there_is_enough_text(both, monkeypatch):
    """Hugging Face's library encodes before, to the same ids and starts."""
    load, loads = gigatoken_engine.gigatoken_engine, []
    monkeypatch.setattr(huggingface, "gigatoken_engine", lambda *given: loads.append(1) or load(*given))
    monkeypatch.setattr(huggingface, "_FIRST", 10_000)
    tokenizer = HuggingFaceTokenizer(both[0].serialized()["tokenizer.json"])
    text = "the river runs past 1 öld mill 🙂 " * 40
    seen = []
    for _ in range(20):
        seen.append(len(loads))
        for mine, other in zip(tokenizer.encode_with_starts([text]), both[0].encode_with_starts([text]), strict=True):
            assert mine[0].tolist() == other[0].tolist()
    assert seen[:3] == [0, 0, 0]
    assert seen[-1] == len(loads) == 1


@given(text=texts)
@settings(deadline=None, max_examples=300)
def test_ids_are_hugging_faces(both, text):
    tokenizer, reference = both
    ids, starts = tokenizer.encode_with_starts([text])
    assert ids[0].tolist() == reference.encode(text, add_special_tokens=False).ids
    assert ids.values.dtype == np.int32
    assert tokenizer.decode(ids[0]) == text
    assert starts[0].tolist() == np.cumsum([0, *(tokenizer._byte_lengths[ids[0]])])[:-1].tolist()


@pytest.mark.parametrize(
    "unit",
    [
        *["a", " ", "世", "a ", "🙂"],
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("\n", ".", "ab", "é", "x9")),
    ],
)
def test_long_runs(both, unit):
    """Equal ids, and time that grows as the text does: a quadratic engine would need minutes."""
    tokenizer, reference = both
    text = unit * (300_000 // len(unit)) + "x"
    begin = time.process_time()
    ids = tokenizer.encode([text])[0]
    assert time.process_time() - begin < 20
    assert ids.tolist() == reference.encode(text, add_special_tokens=False).ids


def merged(pre_tokenizer):
    """Merges by which the class of every character decides the ids."""
    return _tokenizer(
        [[left, _ALPHABET[byte]] for left in ("a", "1", ".", "ĉ", "Ċ", "Ġ") for byte in range(128, 256)], pre_tokenizer
    )


ENGINES = [_BYTE_LEVEL, _BYTE_LEVEL | {"add_prefix_space": True}, _split(decoding._GPT4)]
SOME, ALL = [*range(0x80, 0x850, 3), *range(0x1020, 0xA000, 97)], [*range(0x80, 0x850), *range(0x1020, 0xA000)]


@pytest.mark.parametrize("pre_tokenizer", ENGINES)
@pytest.mark.parametrize("codes", [SOME, pytest.param(ALL, marks=pytest.mark.slow)], ids=["some", "all"])
def test_classes_of_characters_are_hugging_faces(pre_tokenizer, codes):
    engine, reference = engine_and_reference(merged(pre_tokenizer))
    assert engine is not None
    for start in range(0, len(codes), 2_000):
        text = "".join(f"a{c}1{c}.{c}\t{c}\n{c} {c}a'{c} " for c in map(chr, codes[start : start + 2_000]))
        assert engine.encode(text).tolist() == reference.encode(text).ids


@pytest.mark.parametrize("character", ["\u0850", "\u088f", "\ua7d2", "한", "🙂"])
def test_characters_that_may_differ_are_left_to_hugging_face(character):
    engine, _ = engine_and_reference(merged(_BYTE_LEVEL))
    assert engine.encode_alike(f"a{character}b") is None
    assert engine.encode_alike("ab") is not None


CUT = ["a river", "1984 was", "x.", " y", "  ", "\n", "'s "]
CUT += ["é", "अ", "ก ข", "🙂", "한 국", "\u1ebf", "\ua000", "\u0840"]


@pytest.mark.parametrize("pre_tokenizer", ENGINES)
@given(parts=st.lists(st.sampled_from([*CUT, " "]), max_size=20))
@settings(max_examples=60, deadline=None)
def test_passages_have_the_ids_of_the_whole_text(pre_tokenizer, parts):
    text = "".join(parts)
    tokenizer = _cached(json.dumps(pre_tokenizer))
    assert "".join(gigatoken_engine.passages(text)) == text
    assert tokenizer.engine == "gigatoken"
    assert tokenizer.encode([text])[0].tolist() == tokenizer._tokenizer.encode(text).ids


@cache
def _cached(pre_tokenizer):
    return HuggingFaceTokenizer(merged(json.loads(pre_tokenizer)))


def test_only_passages_with_strange_characters_are_left_to_hugging_face():
    passages = list(gigatoken_engine.passages("a river runs. One mill 🙂, an old one and more. Or ก 1 is three"))
    assert passages == ["a river runs. One", " mill 🙂, an", " old one and", " more. Or ก 1", " is three"]


def test_other_ids_are_refused():
    config = json.loads(merged(_BYTE_LEVEL))
    reference = tokenizers.Tokenizer.from_str(_tokenizer([["a", "Ġ"]]).decode())
    assert gigatoken_engine.gigatoken_engine(config, reference) is None


def test_a_new_cache_gives_the_same_ids(monkeypatch):
    monkeypatch.setattr(gigatoken_engine, "_BYTES_A_CACHE", 100)
    engine, reference = engine_and_reference(merged(_BYTE_LEVEL))
    backends = set()
    for number in range(30):
        text = f"a{number} é1 " * 5
        assert engine.encode(text).tolist() == reference.encode(text).ids
        backends.add(id(engine._backend))
    assert len(backends) > 1


@given(data=st.data())
def test_any_merges_give_hugging_faces_ids(data):
    """Merges drawn at random, sound or not: the library merges pairs as Hugging Face does."""
    tokens, merges = list("abc"), []
    for _ in range(data.draw(st.integers(0, 12))):
        pair = [data.draw(st.sampled_from(tokens)), data.draw(st.sampled_from(tokens))]
        if pair not in merges and len("".join(pair)) <= 8:
            merges.append(pair)
            tokens.append("".join(pair))
    engine, reference = engine_and_reference(_tokenizer(merges))
    for text in data.draw(st.lists(st.text("abc", max_size=24), min_size=5, max_size=20)):
        assert engine.encode(text).tolist() == reference.encode(text).ids


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_can_encode(both):
    tokenizer, _ = both
    expected = tokenizer.encode(["the river runs " * 100])[0].tolist()
    child = os.fork()
    if not child:
        same = tokenizer.encode(["the river runs " * 100])[0].tolist() == expected
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_without_the_library_hugging_faces_encodes(monkeypatch, both):
    monkeypatch.setitem(__import__("sys").modules, "gigatoken.gigatoken_rs", None)
    other = HuggingFaceTokenizer(both[0].serialized()["tokenizer.json"])
    assert other.engine == "huggingface"
    assert other.fingerprint == both[0].fingerprint
    assert other.encode(["the river"])[0].tolist() == both[0].encode(["the river"])[0].tolist()
