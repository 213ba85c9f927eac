"""Numbering of word n-grams, so that they can be counted like words."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from objectives.rouge.numbering import mixed, number
from objectives.rouge.words import Words


class Ngrams(NamedTuple):
    """N-grams of the words of texts by their start position, for compiled code.

    An n-gram belongs to a sentence if all its words do: those of a sentence of words a to b start at a to b - n. The
    other n-grams of a text start in one sentence and end in another.

    Attributes:
        size: n.
        ids: ``(positions,)`` int32, numbered within each text; undefined at positions where no n-gram starts.
        edges: ``(texts + 1,)`` int64: the words of text i are at ``edges[i]`` to ``edges[i + 1]``.
        bounds: ``(sentences + 1,)`` int64, the same for sentences.
        sentences: ``(texts + 1,)`` int64, the sentences of text i.
        distinct: ``(texts,)`` int64, number of distinct ids of each text.
    """

    size: int
    ids: np.ndarray
    edges: np.ndarray
    bounds: np.ndarray
    sentences: np.ndarray
    distinct: np.ndarray


def number_ngrams(words: Words, size: int) -> Ngrams:
    """Number the n-grams of ``size`` words; they may cross the boundaries of sentences, but not of texts."""
    values, bounds, edges = words.ids.values, words.ids.offsets, words.edges
    if size == 1:
        return Ngrams(1, values, edges, bounds, words.sentences, words.distinct)
    begins = np.arange(len(values))
    ends = np.minimum(begins + size, len(values))
    ids, distinct = number(values, begins, ends, _keys(values, begins, ends), 0, edges)
    return Ngrams(size, ids, edges, bounds, words.sentences, distinct)


@compiled
def _keys(values: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    keys = np.zeros(len(begins), np.uint64)
    for i in range(len(begins)):
        for position in range(begins[i], ends[i]):
            keys[i] = mixed(keys[i], values[position])
    return keys


@compiled
def add_counts(ids: np.ndarray, counts: np.ndarray, by: int) -> None:
    """Add ``by`` to the count of every n-gram in ``ids``."""
    for gram in ids:
        counts[gram] += by


@compiled
def count_shared(ids: np.ndarray, counts: np.ndarray, own: np.ndarray) -> int:
    """Count the n-grams that ``ids`` shares with ``counts``; ``own`` is scratch, all 0 before and after."""
    shared = 0
    for gram in ids:
        own[gram] += 1
        shared += own[gram] <= counts[gram]
    for gram in ids:
        own[gram] = 0
    return shared
