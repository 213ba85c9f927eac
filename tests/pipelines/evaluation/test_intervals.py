"""Intervals of metrics and of paired differences."""

from __future__ import annotations

import numpy as np
import pytest

from objectives.metrics.load import load_metric
from pipelines.evaluation.intervals import measured

HITS = np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0] * 20) * 100


@pytest.fixture(scope="module")
def metric():
    return load_metric("exact_match")


def key_of(metric) -> str:
    return next(iter(metric.scores(["a"], [["a"]], None)))


def test_equal_systems_differ_by_nothing_although_each_has_an_interval(metric):
    key = key_of(metric)
    (first, none), (second, difference) = measured(metric, [{key: HITS}, {key: HITS}], 200, 0)
    assert none == {}
    assert first == second
    assert first[key]["low"] < first[key]["value"] < first[key]["high"]
    assert difference[key] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_a_constant_gain_has_a_difference_without_width(metric):
    key = key_of(metric)
    _, (_, difference) = measured(metric, [{key: HITS / 2}, {key: HITS / 2 + 10}], 200, 0)
    assert difference[key] == pytest.approx({"value": 10.0, "low": 10.0, "high": 10.0})
