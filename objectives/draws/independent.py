"""Independent keyed draws: selection, treatment and replacement of tokens, and standard normal numbers.

Logarithms and cosines of numpy and the C library differ in their last bits between processors. Those here consist of
sums and products only, whose rounding IEEE 754 defines.
"""

from __future__ import annotations

import math

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

    ``keys``: ``(n, 2)`` uint64, one generator per row. ``sizes``: ``(n,)`` int64, tokens of each row. ``bounds``:
    ``(k,)`` uint64, ascending, at most 2**32.

    Output, one longer than all tokens: ``places``, int32, positions of the chosen tokens in their rows, concatenated;
    and ``kinds``, uint8, number of bounds that each token's number reaches, 0 to k - 1. ``counts``: output, ``(n,)``
    int64, number of tokens chosen in each row.
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

    ``keys``: ``(n, 2)`` uint64, one generator per row, as numpy's Philox. ``out``: output, the drawn ids of all rows,
    concatenated; int32.
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


_LN2, _TURN = math.log(2.0), 2.0 * math.pi
_ATANH = tuple(1.0 / (2 * n + 1) for n in range(11))  # of x + x**3 / 3 + x**5 / 5 + ...
_COS = tuple((-1.0) ** n / math.factorial(2 * n) for n in range(9))
_SIN = tuple((-1.0) ** n / math.factorial(2 * n + 1) for n in range(9))


@compiled
def normal(bits: np.ndarray) -> np.ndarray:
    """Compute standard normal numbers, ``(n,)`` float64, from the first two columns of ``bits``, ``(n, k)`` uint64.

    Source: Box and Muller 1958; only the cosine of each pair is used.
    """
    out = np.empty(len(bits), np.float64)
    for i in range(len(bits)):
        radius = 1.0 - (bits[i, 0] >> np.uint64(11)) * 2.0**-53  # above 0
        out[i] = math.sqrt(-2.0 * log(radius)) * cos_of_turns((bits[i, 1] >> np.uint64(11)) * 2.0**-53)
    return out


@compiled
def log(x: float) -> float:
    """Compute the natural logarithm of a number above 0, to about 2 units in the last place."""
    share, exponent = math.frexp(x)
    if share < math.sqrt(0.5):
        share, exponent = 2.0 * share, exponent - 1
    ratio = (share - 1.0) / (share + 1.0)  # log(share) = 2 atanh(ratio), and |ratio| < .172
    return exponent * _LN2 + 2.0 * ratio * _series(_ATANH, ratio * ratio)


@compiled
def cos_of_turns(turns: float) -> float:
    """Compute the cosine of ``2 pi turns``, ``0 <= turns < 1``, to about 2 units in the last place of 1."""
    quarter = math.floor(4.0 * turns + 0.5)
    angle = _TURN * (turns - 0.25 * quarter)  # at most an eighth of a turn either way
    square = angle * angle
    value = _series(_COS, square) if quarter % 2 == 0 else angle * _series(_SIN, square)
    return value if quarter in (0, 3, 4) else -value


@compiled
def _series(coefficients: tuple[float, ...], x: float) -> float:
    total = 0.0
    for i in range(len(coefficients)):
        total = total * x + coefficients[len(coefficients) - 1 - i]
    return total
