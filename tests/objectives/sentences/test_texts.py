"""Ends of sentences in their texts, and numbers of their words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from objectives.sentences.texts import sentence_ends, spaced_words
from tests.objectives.texts import documents, starts_of


@given(documents)
def test_words_are_counted_as_python_splits(texts):
    starts = starts_of(texts)
    joined = ["".join(sentences) for sentences in texts]
    expected = [len(sentence.split()) for sentences in texts for sentence in sentences]
    assert spaced_words(joined, starts).tolist() == expected
    sizes = np.array([len(sentence) for sentences in texts for sentence in sentences], np.int64)
    assert np.array_equal(sentence_ends(joined, starts), starts.values + sizes)


@given(st.text("a \t\x1c\x85\xa0\u2028\u3000\u3001\u200b\u4e2d\U0001f600"))
def test_every_white_space_of_unicode_parts_words(text):
    assert spaced_words([text], Ragged.from_rows([[0]], np.int64)).tolist() == [len(text.split())]
