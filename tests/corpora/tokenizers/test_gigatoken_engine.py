"""The ids of gigatoken are Hugging Face's, for every text that it is given."""

from __future__ import annotations

import json
import os
import time
from functools import cache

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.tokenizers import byte_level, gigatoken_engine, huggingface
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from tests.corpora.tokenizers.test_byte_level import _ALPHABET, _BYTE_LEVEL, _split, _tokenizer

pytest.importorskip("gigatoken")

SPECIAL = [
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "it's",
    "I'LL",
    "  ",
    "\n\n",
    "\t",
    "\x00",
    "e\u0301",
    "１２",
    "½",
    "👩\u200d👧",
]
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
    load, loads = huggingface.gigatoken_engine, []
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


def test_names_of_special_tokens_stay_text(both):
    tokenizer, _ = both
    assert not set(tokenizer.encode(["<s>a</s><pad>"])[0].tolist()) & set(tokenizer.owned_tokens.values())


@pytest.mark.parametrize("unit", ["a", " ", "\n", ".", "世", "ab", "a ", "é", "x9", "🙂"])
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


def agree(pre_tokenizer, codes):
    engine, reference = engine_and_reference(merged(pre_tokenizer))
    assert engine is not None
    for start in range(0, len(codes), 2_000):
        text = "".join(f"a{c}1{c}.{c}\t{c}\n{c} {c}a'{c} " for c in map(chr, codes[start : start + 2_000]))
        assert engine.encode(text).tolist() == reference.encode(text).ids


ENGINES = [_BYTE_LEVEL, _BYTE_LEVEL | {"add_prefix_space": True}, _split(byte_level._GPT4)]


@pytest.mark.parametrize("pre_tokenizer", ENGINES)
def test_classes_of_some_characters_are_hugging_faces(pre_tokenizer):
    agree(pre_tokenizer, [*range(0x80, 0x850, 3), *range(0x1020, 0xA000, 97)])


@pytest.mark.slow
@pytest.mark.parametrize("pre_tokenizer", ENGINES)
def test_classes_of_all_characters_are_hugging_faces(pre_tokenizer):
    agree(pre_tokenizer, [*range(0x80, 0x850), *range(0x1020, 0xA000)])


@pytest.mark.parametrize("character", ["\u0850", "\u088f", "\ua7d2", "한", "🙂"])
def test_characters_that_may_differ_are_left_to_hugging_face(character):
    engine, _ = engine_and_reference(merged(_BYTE_LEVEL))
    assert engine.encode_alike(f"a{character}b") is None
    assert engine.encode_alike("ab") is not None


CUT = [
    "a river",
    "1984 was",
    "x.",
    " y",
    "  ",
    "\n",
    "'s ",
    "é",
    "अ",
    "ก ข",
    "🙂",
    "한 국",
    "\u1ebf",
    "\ua000",
    "\u0840",
]


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


def test_another_split_is_refused():
    assert engine_and_reference(merged(_split(r"\w+")))[0] is None


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
@settings(max_examples=60, deadline=None)
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
    data = both[0].serialized()["tokenizer.json"]
    other = HuggingFaceTokenizer(data)
    assert other.engine == "huggingface"
    assert other.fingerprint == both[0].fingerprint
    assert other.encode(["the river"])[0].tolist() == both[0].encode(["the river"])[0].tolist()
