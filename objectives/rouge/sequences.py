"""Sequences of word numbers: their n-grams, and longest common subsequences of one with many, 64 elements at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled
from objectives.rouge.numbering import mix_letter, number_words
from objectives.rouge.words import Words


class Ngrams(NamedTuple):
    """N-grams of the words of texts by their start position, for compiled code.

    An n-gram belongs to a sentence if all its words do: those of a sentence of words a to b start at a to b - n. The
    other n-grams of a text start in one sentence and end in another.

    """

    size: int  # n
    ids: np.ndarray  # (positions,) int32, numbered within each text; undefined at positions where no n-gram starts
    edges: np.ndarray  # (texts + 1,) int64: the words of text i are at ``edges[i]`` to ``edges[i + 1]``
    bounds: np.ndarray  # (sentences + 1,) int64, the same for sentences
    sentences: np.ndarray  # (texts + 1,) int64, the sentences of text i
    distinct: np.ndarray  # (texts,) int64, number of distinct ids of each text


def number_ngrams(words: Words, size: int) -> Ngrams:
    """Number the n-grams of ``size`` words; they may cross the boundaries of sentences, but not of texts."""
    values, bounds, edges = words.ids.values, words.ids.offsets, words.edges
    if size == 1:
        return Ngrams(1, values, edges, bounds, words.sentences, words.distinct)
    begins = np.arange(len(values))
    ends = np.minimum(begins + size, len(values))
    ids, distinct = number_words(values, begins, ends, _keys(values, begins, ends), 0, edges)
    return Ngrams(size, ids, edges, bounds, words.sentences, distinct)


@compiled
def _keys(values: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    keys = np.zeros(len(begins), np.uint64)
    for i in range(len(begins)):
        for position in range(begins[i], ends[i]):
            keys[i] = mix_letter(keys[i], values[position])
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


_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_1, _2, _4, _56 = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
_5555, _3333 = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_0F0F, _0101 = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@compiled
def lcs_lengths(
    sequence: np.ndarray, ids: np.ndarray, bounds: np.ndarray, compared: np.ndarray, most: int
) -> np.ndarray:
    """Compute the length of the longest common subsequence of ``sequence`` with each of many others.

    Each bit of ``row`` is a position of ``sequence``, and is 0 if the length grows from there to the next position. One
    element of the other sequence updates 64 positions with one addition, whose carry goes to the next 64. Each 64
    positions are processed for all elements before the next, so carries are stored, and only 64 positions are marked
    at a time: memory is linear.

    Source: Crochemore et al. 2001, "A fast and practical bit-vector algorithm for the longest common subsequence
    problem".

    ``sequence``: ``(m,)`` integers from 0 to ``most - 1``. ``ids``: the other sequences, concatenated; sequence i is
    ``ids[bounds[i]:bounds[i + 1]]``. ``compared``: ``(n,)`` bool, the sequences to compare. Returns ``(n,)`` int64, 0
    for sequences that are not compared.
    """
    lengths = np.zeros(len(compared), np.int64)
    marks = np.zeros(most, np.uint64)  # by element, its places among the 64
    carries = np.zeros(bounds[-1] - bounds[0], np.uint64)
    others = np.flatnonzero(compared)
    for begin in range(0, len(sequence) if len(others) else 0, 64):
        block = sequence[begin : begin + 64]
        for place in range(len(block)):
            marks[block[place]] |= _1 << np.uint64(place)
        for i in others:
            row = _ALL
            for position in range(bounds[i], bounds[i + 1]):
                mark, carry = marks[ids[position]], carries[position - bounds[0]]
                if mark | carry:
                    part = row + (row & mark)
                    total = part + carry
                    carries[position - bounds[0]] = np.uint64(part < row) | np.uint64(total < part)
                    row = total | (row & ~mark)
            lengths[i] += _ones(~row)
        for element in block:
            marks[element] = 0
    return lengths


@compiled
def union_lcs(sequence: np.ndarray, ids: np.ndarray, bounds: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Mark the elements of ``sequence`` in a longest common subsequence with any of many others.

    Of several longest subsequences with one of the others, the one that ``rouge_score`` finds is used: from the end of
    both, an equal pair is taken; otherwise the other sequence is shortened if that is better than shortening
    ``sequence``. Bit i of the row after element j, as in ``lcs_lengths``, decides this without the full table: it is 0
    if the length grows from position i - 1 to i.

    ``sequence``: ``(m,)`` integers. ``ids``: the other sequences, concatenated; sequence i is ``ids[bounds[i]:bounds[i
    + 1]]``. ``marks``: scratch of uint64 for every element, all 0 before and after. Returns ``(m,)`` bool.
    """
    first, total = bounds[0], bounds[-1] - bounds[0]
    blocks = (len(sequence) + 63) // 64
    rows, carries = np.empty((blocks, total), np.uint64), np.zeros(total, np.uint64)
    for block in range(blocks):
        begin = block * 64
        for place in range(min(64, len(sequence) - begin)):
            marks[sequence[begin + place]] |= _1 << np.uint64(place)
        for i in range(len(bounds) - 1):
            row = _ALL
            for at in range(bounds[i] - first, bounds[i + 1] - first):
                mark, carry = marks[ids[first + at]], carries[at]
                if mark | carry:
                    part = row + (row & mark)
                    wide = part + carry
                    carries[at] = np.uint64(part < row) | np.uint64(wide < part)
                    row = wide | (row & ~mark)
                rows[block, at] = row
        for place in range(min(64, len(sequence) - begin)):
            marks[sequence[begin + place]] = 0
    taken = np.zeros(len(sequence), np.bool_)
    for i in range(len(bounds) - 1):
        _trace(sequence, ids[bounds[i] : bounds[i + 1]], rows[:, bounds[i] - first : bounds[i + 1] - first], taken)
    return taken


@compiled
def _trace(sequence: np.ndarray, other: np.ndarray, rows: np.ndarray, taken: np.ndarray) -> None:
    """Mark in ``taken`` a longest common subsequence of ``sequence`` and ``other``, given the ``rows`` of bits."""
    i, j = len(sequence) - 1, len(other) - 1
    while i >= 0 and j >= 0:
        if sequence[i] == other[j]:
            taken[i] = True
            i, j = i - 1, j - 1
        elif rows[i >> 6, j] >> np.uint64(i & 63) & _1:
            i -= 1
        else:
            j -= 1


@compiled
def _ones(value: np.uint64) -> int:
    """Count the bits that are 1: sums of neighbours in 2, 4 and 8 bits, then of all bytes."""
    value -= (value >> _1) & _5555
    value = (value & _3333) + ((value >> _2) & _3333)
    value = (value + (value >> _4)) & _0F0F
    return int((value * _0101) >> _56)
