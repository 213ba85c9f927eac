"""Resampled means: seeded, the same examples for all systems, and as wide as theory says."""

import numpy as np

from objectives.metrics import bootstrap
from objectives.metrics.bootstrap import resample, resample_means


def test_equal_seeds_draw_equal_examples(monkeypatch):
    scores = np.random.default_rng(0).normal(size=(50, 2))
    means = resample_means(scores, 300, seed=4)
    assert means.shape == (300, 2)
    assert np.array_equal(means, resample_means(scores, 300, seed=4))
    assert not np.array_equal(means, resample_means(scores, 300, seed=5))
    monkeypatch.setattr(bootstrap, "_ELEMENTS", 250)
    assert np.array_equal(means, resample_means(scores, 300, seed=4))


def test_a_constant_difference_has_no_width():
    """Both systems are resampled by the same examples, so what varies from example to example cancels."""
    scores = np.random.default_rng(1).normal(size=80)
    one, other = resample_means(scores), resample_means(scores + 2)
    assert np.allclose(other - one, 2, rtol=0, atol=1e-12)
    assert np.ptp(one) > 0.3


def test_the_spread_is_the_standard_error():
    scores = np.random.default_rng(2).normal(size=400)
    means = resample_means(scores, 4_000)
    assert np.isclose(means.mean(), scores.mean(), atol=0.005)
    assert np.isclose(means.std(), scores.std() / 20, rtol=0.05)


def test_every_example_is_drawn_as_often():
    drawn = resample_means(np.eye(7), 5_000).mean(axis=0)
    assert np.allclose(drawn, 1 / 7, atol=0.004)
    draws = resample_means(np.eye(7), 50) * 7
    assert np.allclose(draws, np.rint(draws))


def test_scores_by_key_are_resampled_together():
    scores = {"a": np.arange(9.0), "b": np.arange(9.0) ** 2}
    found = resample(scores, 40, seed=1)
    assert np.array_equal(found["b"], resample_means(scores["b"], 40, seed=1))
    assert [*found] == ["a", "b"]
