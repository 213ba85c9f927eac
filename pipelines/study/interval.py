"""95 % intervals of differences over seeds and examples together.

Scores of an arm are ``(S, N)``: the sample of a seed and of an example is drawn from all seeds and all examples. The
variance of their mean is estimated from the mean squares of seeds, examples and rest (a random-effects model with two
crossed factors), and Student's t has Satterthwaite's degrees of freedom. Below ``FEW`` seeds that is too narrow at
times: there the interval adds up the variances of the means over seeds and over examples, with S - 1 degrees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

FEW = 5
"""Number of seeds from which variances are told apart."""
_LARGEST = 200  # degrees of freedom; more change the interval by less than a hundredth


class Interval(NamedTuple):
    """A difference with its 95 % interval; ``low`` and ``high`` are None for a single seed."""

    value: float
    low: float | None
    high: float | None


class _Term(NamedTuple):
    """A part of the variance of a mean, and its degrees of freedom."""

    variance: float
    degrees: float


def difference(arm: np.ndarray, baseline: np.ndarray, paired: Sequence[str] = ("seed", "example")) -> Interval:
    """Compute the mean of ``arm`` less that of ``baseline``, with its interval.

    Both are ``(S, N)`` float64, scores by seed and example; N is 1 for values without examples. ``paired`` has ``seed``
    if row s of both has the same seed, ``example`` if column n of both is the same example.
    """
    value = float(arm.mean() - baseline.mean())
    if min(len(arm), len(baseline)) < 2:
        return Interval(value, None, None)
    seeds = _main_terms(arm, baseline, "seed" in paired, 1)
    examples = _main_terms(arm, baseline, "example" in paired, 0) if arm.shape[1] > 1 else []
    least = min(len(arm), len(baseline))
    if least < FEW or not examples:
        variance, degrees = sum(term.variance for term in seeds + examples), float(least - 1)
    else:
        both = {"seed", "example"} <= set(paired)
        rest = [_rest(arm - baseline)] if both else [_rest(arm), _rest(baseline)]
        excess = sum(term.variance for term in rest)  # counted in both of the others
        total = sum(term.variance for term in seeds + examples)
        variance = max(total - excess, excess)
        squares = sum(term.variance**2 / term.degrees for term in seeds + examples + rest)
        degrees = variance**2 / squares if squares else 1.0
    half = quantile(min(max(degrees, 1.0), _LARGEST)) * math.sqrt(variance)
    return Interval(value, value - half, value + half)


def _main_terms(arm: np.ndarray, baseline: np.ndarray, paired: bool, axis: int) -> list[_Term]:
    """Variances of the difference that seeds (``axis`` 1) or examples (0) cause."""
    means = [arm.mean(axis), baseline.mean(axis)]
    parts = [means[0] - means[1]] if paired else means
    return [_Term(float(part.var(ddof=1)) / len(part), len(part) - 1) for part in parts]


def _rest(scores: np.ndarray) -> _Term:
    """Variance of the mean of ``(S, N)`` scores that neither seeds nor examples explain."""
    seeds, examples = scores.shape
    rest = scores - scores.mean(1, keepdims=True) - scores.mean(0, keepdims=True) + scores.mean()
    degrees = (seeds - 1) * (examples - 1)
    return _Term(float((rest**2).sum()) / degrees / scores.size, degrees)


@lru_cache(maxsize=4096)
def quantile(degrees: float) -> float:
    """Return the value that Student's t exceeds with probability .025.

    With t = sqrt(degrees) tan(a), the density of a is proportional to cos(a)^(degrees - 1).
    """
    nodes, weights = np.polynomial.legendre.leggauss(96)

    def integral(end: float) -> float:
        return float(end * (weights * np.cos(end * (nodes + 1) / 2) ** (degrees - 1)).sum())

    low, high, wanted = 0.0, math.pi / 2, 0.95 * integral(math.pi / 2)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if integral(middle) < wanted else (low, middle)
    return math.sqrt(degrees) * math.tan(low)
