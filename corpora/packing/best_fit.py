"""Best-fit decreasing: documents packed whole into few rows, with hardly any padding.

Pieces are placed from the longest to the shortest, each in the fullest row that has room for it. Source: Ding et al.
2024, "Fewer truncations improve language modeling" (arXiv 2404.10830), section 3.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled, trailing_zeros

_ONE = np.uint64(1)


@compiled(small=True)
def best_fit_parts(lengths: np.ndarray, capacity: int, reserved: int) -> np.ndarray:
    """Place whole pieces in rows; return row, piece, offset 0 and size of every part, ``(4, n)`` int64.

    Pieces of equal length are placed in the given order; of equally full rows, the one that was filled last is taken.
    The parts of a row are in the given order.

    ``lengths``: ``(n,)`` tokens of each piece, from 1 to ``capacity - reserved``.
    """
    order = _longest_first(lengths, capacity)
    # a segment tree over free positions, 64 children a node: bit f of `rooms` is set if a row has f positions free,
    # bit w of `words` if any bit of word w of `rooms` is set
    rooms = np.zeros((capacity >> 6) + 2, np.uint64)
    words = np.zeros((capacity >> 12) + 2, np.uint64)
    last_row = np.full(capacity + 1, -1, np.int64)  # the last row that was left with so many free positions
    row_before = np.full(len(lengths), -1, np.int64)  # the row before it that was
    row_of = np.empty(len(lengths), np.int64)
    rows = 0
    for piece in order:
        need = lengths[piece] + reserved
        free = -1  # least number of free positions from `need` on that a row has
        word = need >> 6
        rest = rooms[word] >> np.uint64(need & 63)
        if rest > 0:
            free = need + np.int64(trailing_zeros(rest))
        else:
            word += 1
            group = word >> 6
            rest = words[group] >> np.uint64(word & 63)
            if rest > 0:
                word += np.int64(trailing_zeros(rest))
            else:
                group += 1
                while group < len(words) and words[group] == 0:
                    group += 1
                if group < len(words):
                    word = (group << 6) + np.int64(trailing_zeros(words[group]))
                    rest = words[group]
            if rest > 0:
                free = (word << 6) + np.int64(trailing_zeros(rooms[word]))
        if free < 0:
            row, free = rows, capacity
            rows += 1
        else:
            row = last_row[free]
            last_row[free] = row_before[row]
            if last_row[free] < 0:
                rooms[free >> 6] ^= _ONE << np.uint64(free & 63)
                if rooms[free >> 6] == 0:
                    words[free >> 12] ^= _ONE << np.uint64((free >> 6) & 63)
        row_of[piece] = row
        free -= need
        if free > reserved:  # otherwise nothing more fits
            row_before[row] = last_row[free]
            last_row[free] = row
            rooms[free >> 6] |= _ONE << np.uint64(free & 63)
            words[free >> 12] |= _ONE << np.uint64((free >> 6) & 63)
    return _by_row(lengths, row_of, rows)


@compiled(small=True)
def _longest_first(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Sort pieces by falling length, equal ones in the given order; ``(n,)`` int64."""
    ends = np.zeros(capacity + 1, np.int64)
    for length in lengths:
        ends[length] += 1
    longer = 0
    for length in range(capacity, -1, -1):
        longer += ends[length]
        ends[length] = longer - ends[length]
    order = np.empty(len(lengths), np.int64)
    for piece in range(len(lengths)):
        order[ends[lengths[piece]]] = piece
        ends[lengths[piece]] += 1
    return order


@compiled(small=True)
def _by_row(lengths: np.ndarray, row_of: np.ndarray, rows: int) -> np.ndarray:
    """List whole pieces as parts of their rows, row by row, in the given order; ``(4, n)`` int64."""
    starts = np.zeros(rows + 1, np.int64)
    for row in row_of:
        starts[row + 1] += 1
    for row in range(rows):
        starts[row + 1] += starts[row]
    parts = np.zeros((4, len(lengths)), np.int64)
    for piece in range(len(lengths)):
        row = row_of[piece]
        part = starts[row]
        starts[row] += 1
        parts[0, part], parts[1, part], parts[3, part] = row, piece, lengths[piece]
    return parts
