"""Intervals of differences over seeds and examples."""

from __future__ import annotations

import numpy as np
import pytest

from objectives.metrics.load import load_metric
from pipelines.study.interval import difference, quantile
from pipelines.study.table import pseudo_values

EXAMPLES = 200


@pytest.mark.parametrize(("degrees", "published"), [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (120, 1.980)])
def test_quantiles_are_those_of_published_tables(degrees, published):
    assert quantile(degrees) == pytest.approx(published, abs=6e-4)


def draw(rng: np.random.Generator, seeds: int, seed_effect: float) -> list[np.ndarray]:
    """Scores of two equal arms, ``(seeds, EXAMPLES)`` each, with effects of seeds, of examples, and both together."""
    common = rng.normal(0, 0.4, EXAMPLES)
    return [
        common
        + rng.normal(0, 0.3, EXAMPLES)
        + rng.normal(0, seed_effect, (seeds, 1))
        + rng.normal(0, 0.5, (seeds, EXAMPLES))
        for _ in range(2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed_effect", [0.02, 0.3], ids=["small", "large"])
@pytest.mark.parametrize("seeds", [5, 10])
def test_intervals_hold_what_they_promise(seeds, seed_effect):
    """Two standard deviations of 2,000 draws are .01."""
    rng = np.random.default_rng([seeds, round(100 * seed_effect)])
    intervals = [difference(*draw(rng, seeds, seed_effect)) for _ in range(2000)]
    assert 0.93 <= np.mean([low <= 0 <= high for _, low, high in intervals]) <= 0.97


@pytest.mark.parametrize("seeds", [2, 3, 4])
def test_intervals_over_few_seeds_are_wide_enough(seeds):
    rng = np.random.default_rng(seeds)
    intervals = [difference(*draw(rng, seeds, 0.3)) for _ in range(400)]
    assert np.mean([low <= 0 <= high for _, low, high in intervals]) >= 0.93


def test_scores_without_examples_have_the_t_interval_over_seeds():
    arm, baseline = np.array([[1.0], [2.0], [3.0], [4.0], [6.0]]), np.zeros((5, 1))
    value, low, high = difference(arm, baseline)
    assert value == pytest.approx(3.2)
    assert high - low == pytest.approx(2 * 2.7764 * np.std(arm, ddof=1) / 5**0.5, rel=1e-4)
    assert difference(arm[:1], baseline[:1]) == (1.0, None, None)


def test_pairing_makes_intervals_narrow_where_arms_have_much_in_common():
    rng = np.random.default_rng(0)
    seeds, examples = rng.normal(0, 1, (6, 1)), rng.normal(0, 1, (1, EXAMPLES))
    arm, baseline = (seeds + examples + rng.normal(0, 0.1, (6, EXAMPLES)) for _ in range(2))

    def width(*paired: str) -> float:
        _, low, high = difference(arm, baseline, paired)
        return high - low

    assert width("seed", "example") < 0.1 * min(width("seed"), width("example"))
    assert max(width("seed"), width("example")) < width()


def test_pseudo_values_of_a_mean_are_the_scores_and_of_a_combination_have_its_value():
    f1, rouge = load_metric("f1"), load_metric("rouge:primera")
    texts, references = ["a cat sat", "dogs ran", "lights"], [["the cat sat down"], ["dogs ran off"], ["a lamp"]]
    scores = f1.scores(texts, references)
    assert pseudo_values(f1, scores) == pytest.approx(scores[f1.primary])
    scores = rouge.scores(texts, references)
    assert pseudo_values(rouge, scores).mean() == pytest.approx(rouge.aggregate(scores)[rouge.primary], abs=1e-4)
