"""Standard normal numbers from random bits, equal on every processor.

Logarithms and cosines of numpy and the C library differ in their last bits between processors. Those here consist of
sums and products only, whose rounding IEEE 754 defines.
"""

from __future__ import annotations

import math

import numpy as np

from corpora.compiled import compiled

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
