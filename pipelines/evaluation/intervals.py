"""Values of metrics with their intervals, and paired differences between systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from objectives.metrics.bootstrap import INTERVAL, resample
from objectives.metrics.protocol import Metric

Scores = Mapping[str, np.ndarray]
Measured = dict[str, dict[str, float]]


def measure(metric: Metric, scores: Sequence[Scores], resamples: int, seed: int) -> list[tuple[Measured, Measured]]:
    """Compute the values of systems with their intervals, and the differences to the first system.

    All systems, each with ``(n,)`` scores by key, are resampled by the same n examples, so a difference has the
    interval of a paired comparison. The result has ``value``, ``low`` and ``high`` by key for each system, and the same
    of the difference, empty for the first.
    """
    means = [metric.combine(resample(own, resamples, seed)) for own in scores]
    values = [metric.aggregate(own) for own in scores]
    tables = []
    for number, (own, value) in enumerate(zip(means, values, strict=True)):
        table = {key: _interval(value[key], own[key]) for key in own}
        difference = {key: _interval(value[key] - values[0][key], own[key] - means[0][key]) for key in own}
        tables.append((table, difference if number else {}))
    return tables


def _interval(value: float, resampled_values: np.ndarray) -> dict[str, float]:
    low, high = np.percentile(resampled_values, INTERVAL)
    return {"value": round(value, 4), "low": round(float(low), 4), "high": round(float(high), 4)}
