"""Inner products that are equal on every processor, and a bound on the error of a matrix product.

A product of two float16 numbers is a multiple of 2**-48 that float64 represents exactly. If the product of the lengths
of two vectors is below 32, so is every partial sum in any order, and the result is exact. Longer vectors are summed
from left to right.
"""

from __future__ import annotations

import numpy as np

from corpora.compiled import compiled

EXACT_BELOW = 31.0
"""Limit of the product of two vectors' lengths, slightly below 32 because lengths are rounded."""

_UNIT = 2.0**-24  # unit roundoff of float32


def error_bound(dimension: int) -> float:
    """Bound the error of a float32 sum of ``dimension`` products, relative to the product of the vectors' lengths.

    It holds for sums in any order, with or without fused multiplication. Source: Higham 2002, "Accuracy and stability
    of numerical algorithms", section 3.1; two more roundings are allowed for lengths and comparisons.
    """
    roundings = (dimension + 2) * _UNIT
    return roundings / (1 - roundings)


@compiled
def dot_in_order(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the inner product of two float32 vectors, summed in float64 from left to right.

    Every product is exact in float64, so a fused multiplication gives the same.
    """
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled(fastmath={"reassoc"})
def dot_exactly(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the inner product of two vectors of float16 numbers whose lengths multiply to less than ``EXACT_BELOW``.

    The vectors are given as float32. Nothing is rounded, so the compiler may vectorise the sum.
    """
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled
def squared_lengths(vectors: np.ndarray, out: np.ndarray) -> None:
    """Write the squared lengths of ``(n, d)`` float32 vectors to ``out``, ``(n,)`` float64."""
    for i in range(len(vectors)):
        out[i] = dot_in_order(vectors[i], vectors[i])
