"""Paired bootstrap: means of resampled examples, from which the intervals of scores and differences follow."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from corpora.keyed import make_key

SAMPLES = 1_000
INTERVAL = (2.5, 97.5)  # percentiles of a 95 % interval
_ELEMENTS = 1 << 22  # scores gathered at a time, which bounds the memory
_32 = np.uint64(32)


def resample_means(scores: np.ndarray, samples: int = SAMPLES, seed: int = 0) -> np.ndarray:
    """Compute the means of ``samples`` resamples of examples, drawn with replacement.

    Equal n, ``samples`` and ``seed`` draw the same examples, so that the resampled means of two systems can be
    subtracted from each other.

    ``scores``: ``(n, ...)`` float64, at least one example. Returns ``(samples, ...)`` float64.
    """
    n = len(scores)
    key = np.frombuffer(make_key(seed, "bootstrap", {"examples": n}), "<u8")
    draws = np.random.Philox(key=key)
    at_a_time = max(_ELEMENTS // max(scores.size, 1), 1)
    means = np.empty((samples, *scores.shape[1:]))
    for begin in range(0, samples, at_a_time):
        count = min(at_a_time, samples - begin)
        drawn = (draws.random_raw(count * n) >> _32) * np.uint64(n) >> _32
        means[begin : begin + count] = scores[drawn.astype(np.int64)].reshape(count, n, *scores.shape[1:]).mean(axis=1)
    return means


def resample(scores: Mapping[str, np.ndarray], samples: int = SAMPLES, seed: int = 0) -> dict[str, np.ndarray]:
    """Apply ``resample_means`` to the scores of each key: ``(n,)`` -> ``(samples,)`` float64."""
    means = resample_means(np.stack(list(scores.values()), axis=1), samples, seed)
    return dict(zip(scores, means.T, strict=True))
