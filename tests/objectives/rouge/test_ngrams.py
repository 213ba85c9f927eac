"""N-grams against tuples of words, across sentences and where a sentence is removed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged
from objectives.rouge.ngrams import add_counts, count_shared, number_ngrams
from objectives.rouge.words import Words, token_words

sentences = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=5)


def words_of(texts: list[list[list[int]]]) -> Words:
    tokens = [[word for sentence in text for word in sentence] for text in texts]
    starts = [np.cumsum([0, *map(len, text)])[:-1] for text in texts]
    return token_words(Ragged.from_rows(tokens, np.int32), Ragged.from_rows(starts, np.int32))


@pytest.mark.parametrize("joints", [False, True])
@given(st.lists(sentences, max_size=3), st.integers(1, 4))
def test_ids_are_equal_where_the_words_are(joints, texts, size):
    grams = number_ngrams(words_of(texts), size, joints=joints and size > 1)
    for number, text in enumerate(texts):
        whole = [word for sentence in text for word in sentence]
        begin = grams.edges[number]
        found = {}
        for at in range(len(whole) - size + 1):
            found.setdefault(int(grams.ids[begin + at]), set()).add(tuple(whole[at : at + size]))
        if len(grams.joints):
            for index in range(len(text)):
                sentence = grams.sentences[number] + index
                before = [word for one in text[:index] for word in one][-(size - 1) :]
                behind = [word for one in text[index + 1 :] for word in one][: size - 1]
                joined, first = before + behind, grams.joints[sentence]
                assert grams.joints[sentence + 1] - first == len(joined)
                for at in range(len(joined) - size + 1):
                    found.setdefault(int(grams.ids[first + at]), set()).add(tuple(joined[at : at + size]))
        assert all(len(tuples) == 1 for tuples in found.values()), "an id of different n-grams"
        assert len({next(iter(tuples)) for tuples in found.values()}) == len(found), "an n-gram of different ids"
        assert all(0 <= gram < grams.distinct[number] for gram in found)


@given(st.lists(st.integers(0, 4), max_size=9), st.lists(st.integers(0, 4), max_size=9))
def test_shared_counts_are_those_of_multisets(left, right):
    counts, scratch = np.zeros(5, np.int64), np.zeros(5, np.int64)
    add_counts(np.array(left, np.int32), counts, 1)
    shared = count_shared(np.array(right, np.int32), counts, scratch)
    assert shared == sum(min(left.count(value), right.count(value)) for value in range(5))
    assert not scratch.any()
    add_counts(np.array(left, np.int32), counts, -1)
    assert not counts.any()
