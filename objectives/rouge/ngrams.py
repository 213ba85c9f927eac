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
        edges: ``(texts + 1,)`` int64: the words of text i are at ``edges[i]`` to ``edges[i + 1]``; positions after the
            last belong to ``joints``.
        bounds: ``(sentences + 1,)`` int64, the same for sentences.
        sentences: ``(texts + 1,)`` int64, the sentences of text i.
        distinct: ``(texts,)`` int64, number of distinct ids of each text.
        joints: ``(sentences + 1,)`` int64: the n-grams that arise when sentence i is removed and its neighbours are
            joined start at ``joints[i]`` to ``joints[i + 1] - n``; empty if not requested.
    """

    size: int
    ids: np.ndarray
    edges: np.ndarray
    bounds: np.ndarray
    sentences: np.ndarray
    distinct: np.ndarray
    joints: np.ndarray


def number_ngrams(words: Words, size: int, joints: bool = False) -> Ngrams:
    """Number the n-grams of ``size`` words; they may cross the boundaries of sentences, but not of texts.

    ``joints``: True to number those that arise when a sentence is removed, too.
    """
    values, bounds, edges = words.ids.values, words.ids.offsets, words.edges
    pieces = np.empty(0, np.int64)
    if size == 1:
        return Ngrams(1, values, edges, bounds, words.sentences, words.distinct, pieces)
    begins = np.arange(len(values))
    ends = np.minimum(begins + size, len(values))
    if not joints:
        ids, distinct = number(values, begins, ends, _keys(values, begins, ends), 0, edges)
        return Ngrams(size, ids, edges, bounds, words.sentences, distinct, pieces)
    read, pieces, owners = _join(values, bounds, words.sentences, size)
    # number() takes a text's n-grams one after the other: those of its words, then those of its joints
    order = np.argsort(owners, kind="stable")
    counts = np.bincount(owners, minlength=len(words.distinct))
    ends = np.minimum(order + size, len(read))
    own, distinct = number(read, order, ends, _keys(read, order, ends), 0, np.append(0, np.cumsum(counts)))
    ids = np.empty(len(read), np.int32)
    ids[order] = own
    return Ngrams(size, ids, edges, bounds, words.sentences, distinct, pieces)


@compiled
def _keys(values: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    keys = np.zeros(len(begins), np.uint64)
    for i in range(len(begins)):
        for position in range(begins[i], ends[i]):
            keys[i] = mixed(keys[i], values[position])
    return keys


@compiled
def _join(
    values: np.ndarray, bounds: np.ndarray, sentences: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Append to the words, for each sentence, the ``size - 1`` words before it and after it.

    Returns the words, the start of each sentence's piece, and the text of each word.
    """
    reach = size - 1
    read = np.empty(len(values) + 2 * reach * (len(bounds) - 1), np.int32)
    owners = np.empty(len(read), np.int64)
    pieces = np.empty(len(bounds), np.int64)
    read[: len(values)] = values
    end = len(values)
    pieces[0] = end
    for text in range(len(sentences) - 1):
        first, last = bounds[sentences[text]], bounds[sentences[text + 1]]
        owners[first:last] = text
        for sentence in range(sentences[text], sentences[text + 1]):
            for position in range(max(first, bounds[sentence] - reach), bounds[sentence]):
                read[end], owners[end] = values[position], text
                end += 1
            for position in range(bounds[sentence + 1], min(last, bounds[sentence + 1] + reach)):
                read[end], owners[end] = values[position], text
                end += 1
            pieces[sentence + 1] = end
    return read[:end], pieces, owners[:end]


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
