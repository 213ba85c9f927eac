"""Numbering of the words of texts by first occurrence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from corpora.compiled import compiled

_TOP = np.uint64(1 << 63)
# The prime of FNV-1a for 64 bits; 2**64 / golden ratio, a multiplier that spreads every bit of a key to the highest.
_PRIME, _SPREAD = np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)


@compiled
def mix_letter(key: np.uint64, letter: int) -> np.uint64:
    """Update the key of a word by one more letter."""
    return (key ^ np.uint64(letter)) * _PRIME + _SPREAD


@compiled
def number_words(
    letters: np.ndarray, begins: np.ndarray, ends: np.ndarray, keys: np.ndarray, exact: int, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Number the words of each text by first occurrence, in a table with open addressing.

    Word i is ``letters[begins[i]:ends[i]]``. ``keys``: ``(words,)`` uint64, equal for equal words, and different for
    different words of up to ``exact`` letters. ``edges``: ``(texts + 1,)`` first word of each text, and the end of the
    last; the words before are stopwords. Returns ``(edges[-1] - edges[0],)`` int32 ids, -1 for stopwords, and
    ``(texts,)`` int64, the number of distinct ids of each text.
    """
    stop = edges[0]
    ids = np.empty(edges[-1], np.int32)
    distinct = np.zeros(len(edges) - 1, np.int64)
    table = _empty_table(4 * stop)
    for text in range(len(distinct)):
        while True:
            distinct[text] = _number_text(letters, begins, ends, keys, exact, stop, edges, text, table, ids)
            if distinct[text] >= 0:
                break
            table = _empty_table(4 * len(table.owners))
    return ids[stop:], distinct


class _Table(NamedTuple):
    """Hash table of words by their keys: key, number and first occurrence of the word in each slot."""

    owners: np.ndarray  # the text whose word is in each slot
    keys: np.ndarray
    numbers: np.ndarray
    words: np.ndarray


@compiled
def _empty_table(least: int) -> _Table:
    size = 256
    while size < least:
        size *= 2
    return _Table(
        np.full(size, -1, np.int64), np.empty(size, np.uint64), np.empty(size, np.int32), np.empty(size, np.int64)
    )


@compiled
def _number_text(
    letters: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    keys: np.ndarray,
    exact: int,
    stop: int,
    edges: np.ndarray,
    text: int,
    table: _Table,
    ids: np.ndarray,
) -> int:
    """Write the ids of one text and return the number of distinct ones, or -1 if the table is too small."""
    owners, table_keys, numbers, words = table
    around, room = len(owners) - 1, len(owners) // 2 - stop
    bits = distinct = 0
    while len(owners) >> bits > 1:
        bits += 1
    shift = np.uint64(64 - bits)
    for step in range(stop + edges[text + 1] - edges[text]):
        word = step if step < stop else edges[text] + step - stop
        key, begin, length = keys[word], begins[word], ends[word] - begins[word]
        if length > exact:
            key |= _TOP  # so that it differs from the keys of shorter words
        place = np.int64(key * _SPREAD >> shift)
        while owners[place] == text:
            if table_keys[place] == key:
                if length <= exact:
                    break
                other = words[place]
                i = 0 if ends[other] - begins[other] == length else length + 1
                while i < length and letters[begin + i] == letters[begins[other] + i]:
                    i += 1
                if i == length:
                    break
            place = np.int64((place + 1) & around)
        if owners[place] != text:
            if distinct == room:
                return -1
            owners[place], table_keys[place], words[place] = text, key, word
            numbers[place] = -1 if step < stop else distinct
            distinct += step >= stop
        ids[word] = numbers[place]
    return distinct


@compiled
def renumber(numbers: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Renumber by first occurrence in each text ``edges[i]:edges[i + 1]``, keeping -1; returns as ``number`` does."""
    most = 0
    for value in numbers:
        most = max(most, int(value) + 1)
    owners, own = np.full(most, -1, np.int64), np.empty(most, np.int32)
    ids = np.full(len(numbers), -1, np.int32)
    distinct = np.zeros(len(edges) - 1, np.int64)
    for text in range(len(distinct)):
        for position in range(edges[text], edges[text + 1]):
            value = int(numbers[position])
            if value < 0:
                continue
            if owners[value] != text:
                owners[value], own[value] = text, distinct[text]
                distinct[text] += 1
            ids[position] = own[value]
    return ids, distinct
