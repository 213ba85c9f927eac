"""Word n-grams as 32-bit hashes: similarity of documents, and repetition inside sequences.

A *word* is a maximal run of letters and digits: ASCII letters, lower-cased, ASCII digits, and all bytes of non-ASCII
characters, so that every alphabet is covered. A text of fewer than n words has one n-gram, all of its words; a text
without words has none. All functions work on whole batches; texts are read as UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged

SKETCH_SIZE = 128

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a's
_MULTIPLIER, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def ngram_hashes(texts: Sequence[str] | pa.Array, n: int = 5) -> Ragged:
    """Hash all word n-grams of texts.

    Returns one uint32 row per text, in the order of the text, including repetitions.
    """
    if n < 1:
        raise FarspanError(f"n-grams of {n} words: n must be at least 1")
    array = texts.cast(pa.large_string()) if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, np.int64, len(array) + 1, array.offset * 8) if len(array) else np.zeros(1, np.int64)
    return Ragged(*_ngrams(np.frombuffer(data or b"", np.uint8), edges, n))


def sketch(ngrams: Ragged, size: int = SKETCH_SIZE) -> Ragged:
    """Return the ``size`` smallest distinct hashes of every row, ascending: the sample that ``jaccard`` uses.

    Source: Broder 1997, "On the resemblance and containment of documents" (one permutation, its s least elements).
    """
    return Ragged(*_smallest(ngrams.values, ngrams.offsets, size))


def jaccard(sketches: Ragged, rows: np.ndarray, others: np.ndarray, size: int = SKETCH_SIZE) -> np.ndarray:
    """Estimate the Jaccard similarity of the n-gram sets of pairs of rows.

    The estimate is the share of the union's ``size`` smallest hashes that both rows have. It is exact if both rows have
    fewer than ``size``; otherwise the standard error is at most ``0.5 / sqrt(size)``. It is 0 if both are empty.

    ``rows``, ``others``: ``(pairs,)`` row numbers. Returns ``(pairs,)`` float32.
    """
    return _jaccards(sketches.values, sketches.offsets, np.asarray(rows), np.asarray(others), size)


def redundancy(ngrams: Ragged, part_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count the n-grams of each sequence that occur in one of its earlier documents.

    ``part_offsets``: ``(sequences + 1,)`` int64; sequence s has the parts ``part_offsets[s]:part_offsets[s + 1]``.
    Returns the number of n-grams that an earlier part of the sequence also has, and of all n-grams, ``(sequences,)``
    int64 each; repetitions are counted.
    """
    return _count_repeated(ngrams.values, ngrams.offsets, np.asarray(part_offsets, np.int64))


@compiled(small=True, inline="always")
def _mix(value: np.uint64) -> np.uint64:
    """Spread a hash over all 64 bits."""
    value = (value ^ (value >> _32)) * _MULTIPLIER
    return value ^ (value >> _32)


@compiled(small=True)
def _ngrams(data: np.ndarray, edges: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute values and offsets of ``ngram_hashes`` for the texts ``data[edges[i]:edges[i + 1]]``."""
    hashes = np.empty((edges[-1] - edges[0] + len(edges)) // 2, np.uint32)  # a word and its gap take two bytes
    offsets = np.zeros(len(edges), np.int64)
    recent = np.empty(n, np.uint64)  # the last n words of the text, word w at w % n
    count = 0
    for text in range(len(edges) - 1):
        words, word, inside = 0, _OFFSET, False
        for i in range(edges[text], edges[text + 1] + 1):
            byte = data[i] if i < edges[text + 1] else np.uint8(0)  # the end of a text ends its last word
            upper = 65 <= byte <= 90
            if upper or 97 <= byte <= 122 or 48 <= byte <= 57 or byte >= 128:
                word = (word ^ np.uint64(byte + 32 if upper else byte)) * _PRIME
                inside = True
            elif inside:
                recent[words % n] = _mix(word)
                words, word, inside = words + 1, _OFFSET, False
                if words >= n:
                    hashes[count] = _ngram(recent, words - n, words)
                    count += 1
        if 0 < words < n:
            hashes[count] = _ngram(recent, 0, words)
            count += 1
        offsets[text + 1] = count
    return hashes[:count].copy(), offsets


@compiled(small=True, inline="always")
def _ngram(recent: np.ndarray, first: int, end: int) -> np.uint32:
    value = np.uint64(0)
    for word in range(first, end):
        value = value * _PRIME + recent[word % len(recent)]
    return np.uint32(_mix(value) >> _32)


@compiled
def _smallest(values: np.ndarray, offsets: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    most = 0
    for row in range(len(offsets) - 1):
        most += min(size, offsets[row + 1] - offsets[row])
    kept = np.empty(most, values.dtype)
    kept_offsets = np.zeros(len(offsets), np.int64)
    count = 0
    for row in range(len(offsets) - 1):
        first = count
        for value in np.sort(values[offsets[row] : offsets[row + 1]]):
            if count - first == size:
                break
            if count == first or kept[count - 1] != value:
                kept[count] = value
                count += 1
        kept_offsets[row + 1] = count
    return kept[:count].copy(), kept_offsets


@compiled
def _jaccards(values: np.ndarray, offsets: np.ndarray, rows: np.ndarray, others: np.ndarray, size: int) -> np.ndarray:
    shares = np.zeros(len(rows), np.float32)
    for pair in range(len(rows)):
        i, end = offsets[rows[pair]], offsets[rows[pair] + 1]
        j, other_end = offsets[others[pair]], offsets[others[pair] + 1]
        # a row below the size is the complete set; of a full row, hashes above its last are unknown
        limit = size if max(end - i, other_end - j) >= size else 2 * size
        union = common = 0
        while union < limit and i < end and j < other_end:
            both = values[i] == values[j]
            step = values[i] <= values[j]
            j += both or not step
            i += step
            common += both
            union += 1
        union = min(limit, union + (end - i) + (other_end - j))  # one row has ended: no more common hashes
        if union:
            shares[pair] = common / union
    return shares


@compiled(small=True)
def _count_repeated(values: np.ndarray, offsets: np.ndarray, part_offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sequences = len(part_offsets) - 1
    repeated, totals = np.zeros(sequences, np.int64), np.zeros(sequences, np.int64)
    for s in range(sequences):
        totals[s] = offsets[part_offsets[s + 1]] - offsets[part_offsets[s]]
    slots = 2
    while slots < 2 * (totals.max() if sequences else 0):
        slots *= 2
    # open addressing: a slot holds a hash, the first part that has it, and the sequence that filled the slot
    hashes, parts = np.empty(slots, values.dtype), np.empty(slots, np.int64)
    owners = np.full(slots, -1, np.int64)
    for s in range(sequences):
        for part in range(part_offsets[s], part_offsets[s + 1]):
            for value in values[offsets[part] : offsets[part + 1]]:
                slot = np.int64(value) & (slots - 1)
                while owners[slot] == s and hashes[slot] != value:
                    slot = (slot + 1) & (slots - 1)
                if owners[slot] != s:
                    owners[slot], hashes[slot], parts[slot] = s, value, part
                repeated[s] += parts[slot] < part
    return repeated, totals
