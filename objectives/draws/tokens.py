"""Independent keyed draws for every token of a row: selection, treatment and replacement."""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled
from corpora.keyed import philox_blocks

_BLOCKS = 64  # made at once


@compiled
def choose_tokens(
    keys: np.ndarray, sizes: np.ndarray, bounds: np.ndarray, places: np.ndarray, kinds: np.ndarray, counts: np.ndarray
) -> None:
    """Draw a number below 2**32 for every token, and choose the tokens whose number is below the last bound.

    The draws of row i are those of ``numpy.random.Generator(numpy.random.Philox(key=keys[i])).integers(2**32,
    size=sizes[i], dtype=numpy.uint32)``.

    Args:
        keys: ``(n, 2)`` uint64, one generator per row.
        sizes: ``(n,)`` int64, tokens of each row.
        bounds: ``(k,)`` uint64, ascending, at most 2**32.
        places: output, positions of the chosen tokens in their rows, concatenated; int32, one longer than all tokens.
        kinds: output, number of bounds that each token's number reaches, 0 to k - 1; uint8, as long as ``places``.
        counts: output, ``(n,)`` int64, number of tokens chosen in each row.
    """
    blocks = np.empty((_BLOCKS, 4), np.uint64)
    stream = blocks.reshape(-1).view(np.uint32)  # low half first, as numpy takes them
    out = 0
    for row in range(len(sizes)):
        first = out
        for start in range(0, sizes[row], 8 * _BLOCKS):
            drawn = min(sizes[row] - start, 8 * _BLOCKS)
            philox_blocks(keys[row, 0], keys[row, 1], np.uint64(start // 8 + 1), blocks[: (drawn + 7) // 8])
            for i in range(drawn):
                number = np.uint64(stream[i])
                # The next token overwrites one that is not chosen: cheaper than an unpredictable branch.
                places[out] = start + i
                kinds[out] = 0
                for bound in bounds[:-1]:
                    kinds[out] += number >= bound
                out += number < bounds[-1]
        counts[row] = out - first


@compiled
def draw_ids(keys: np.ndarray, counts: np.ndarray, ids: np.ndarray, out: np.ndarray) -> None:
    """Draw ``counts[i]`` of the ``ids`` for row i, with equal probabilities.

    Indices are remainders of 64 random bits, so uniform to one part in 2**40 for a vocabulary of 2**24.

    ``keys``: ``(n, 2)`` uint64, one generator per row, as numpy's Philox. ``counts``: ``(n,)`` int64. ``ids``: ``(v,)``
    int32. ``out``: output, the drawn ids of all rows, concatenated; int32.
    """
    blocks = np.empty((_BLOCKS, 4), np.uint64)
    stream = blocks.reshape(-1)
    at = 0
    for row in range(len(counts)):
        for start in range(0, counts[row], 4 * _BLOCKS):
            drawn = min(counts[row] - start, 4 * _BLOCKS)
            philox_blocks(keys[row, 0], keys[row, 1], np.uint64(start // 4 + 1), blocks[: (drawn + 3) // 4])
            for i in range(drawn):
                out[at] = ids[stream[i] % np.uint64(len(ids))]
                at += 1
