"""The tables of a study: one for each metric, with a row for each arm."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from corpora.errors import FarspanError
from objectives.metrics.metrics import load_metric
from objectives.metrics.protocol import Metric
from pipelines.evaluation.evaluate import group_rows
from pipelines.evaluation.systems import read_systems
from pipelines.runs.logs import read_logs
from pipelines.study.plan import Plan, split_metric
from pipelines.study.steps import Step

_DIGITS = 4
_BINS = 4  # of an attribute with many numbers
FEW = 5
"""Number of seeds from which variances are told apart."""
_LARGEST = 200  # degrees of freedom; more change the interval by less than a hundredth


def make_tables(plan: Plan, stages: str) -> list[dict[str, Any]]:
    """Measure all arms whose steps are in the folder ``stages``, and compare them with the baseline."""
    tables = []
    for metric in plan.study.compare.metrics:
        _, name = split_metric(metric)
        measured = {
            arm.name: measure(plan.measured(metric, arm.name), name, stages, plan.study.compare.by) for arm in plan.arms
        }
        tables += [
            _table(plan, metric, group, {arm: scores[group] for arm, scores in measured.items()})
            for group in measured[plan.study.compare.baseline]
        ]
    return tables


def _table(plan: Plan, metric: str, group: str, scores: Mapping[str, np.ndarray]) -> dict[str, Any]:
    compare, (_, name) = plan.study.compare, split_metric(metric)
    generated = plan.measured(metric, compare.baseline)[0].command.name == "generate"
    examples = max(one.shape[1] for one in scores.values())
    lower = not generated and "loss" in name
    means = {arm: float(one.mean()) for arm, one in scores.items()}
    best = sorted(means, key=lambda arm: round(means[arm] if lower else -means[arm], _DIGITS))[0]
    seeds = len(plan.study.seed_list)
    return {
        "study": os.path.basename(plan.path).removesuffix(".toml"),
        "metric": f"{metric}, {compare.by} {group}" if group else metric,
        "flavour": load_metric(name).flavour if generated else "the last value that the run has logged",
        "better": "lower" if lower else "higher",
        "seeds": list(plan.study.seed_list),
        "examples": examples if generated else None,
        "baseline": compare.baseline,
        "interval": _describe_interval(seeds, generated),
        "paired": list(compare.paired),
        "best": {"arm": best, "arms": len(scores), "trials": len(scores) * seeds},
        "rows": [
            {"arm": arm.name, **dict(arm.choices), **_row(scores[arm.name], scores[compare.baseline], plan)}
            for arm in plan.arms
        ],
    }


def _describe_interval(seeds: int, generated: bool) -> str:
    if seeds < 2:
        return "none: one seed"
    over = "seeds and examples together" if generated else "seeds, as the metric has no examples"
    return f"95 %, over {over}" + (f"; wide, because there are fewer than {FEW} seeds" if seeds < FEW else "")


def _row(arm: np.ndarray, baseline: np.ndarray, plan: Plan) -> dict[str, Any]:
    row: dict[str, Any] = {
        "value": _round(arm.mean()),
        "values": [_round(value) for value in arm.mean(1)],
        "difference": None,
        "low": None,
        "high": None,
        "significant": False,
        "differences": [],
    }
    if arm is baseline:
        return row
    value, low, high = difference(arm, baseline, plan.study.compare.paired)
    row |= {"difference": _round(value)}
    if "seed" in plan.study.compare.paired:
        row["differences"] = [_round(one) for one in arm.mean(1) - baseline.mean(1)]
    if low is not None and high is not None:
        row |= {"low": _round(low), "high": _round(high)}
        row["significant"] = row["low"] > 0 or row["high"] < 0
    return row


def _round(value: Any) -> float:
    return round(float(value), _DIGITS) + 0.0  # no -0.0


def measure(steps: Sequence[Step], name: str, stages: str, by: str) -> dict[str, np.ndarray]:
    """Read a metric of one arm: value of the attribute ``by`` -> scores, or one value, ``""``.

    Scores are ``(S, N)`` float64 by seed and example, with means that are the metric for each seed; N is 1 for losses.
    """
    folders = [os.path.join(stages, step.id) for step in steps]
    if steps[0].command.name == "train":
        return {"": np.array([[_last_value(folder, name)] for folder in folders])}
    metric = load_metric(name)
    questions, systems = read_systems(folders, None, None, None)
    choices = questions.options if metric.needs_options else None
    scored = [metric.scores(system.texts, questions.references, choices) for system in systems]
    groups = group_rows(questions.attributes(by), _BINS) if by else [("", np.arange(len(questions.ids)))]
    return {
        group: np.stack([pseudo_values(metric, {key: one[rows] for key, one in seed.items()}) for seed in scored])
        for group, rows in groups
    }


def _last_value(folder: str, name: str) -> float:
    """Return the last value that a run has logged; ``A - B`` is the difference of two."""
    logs, last = read_logs(folder), []
    for part in name.split(" - "):
        values = logs.curve(part)[1]
        if not len(values):
            raise FarspanError(f"{folder}: metrics.jsonl has no {part}; compare a metric that the run logs")
        last.append(float(values[-1]))
    return last[0] - sum(last[1:])


def pseudo_values(metric: Metric, scores: dict[str, np.ndarray]) -> np.ndarray:
    """Divide a metric's primary value among its ``(n,)`` examples, ``(n,)`` float64, as the jackknife does.

    For a mean of examples these are their scores; a combination of means, such as ROUGE's geometric one, is
    made a mean.
    """
    n = len(next(iter(scores.values())))
    whole = metric.combine({key: np.array(values.mean()) for key, values in scores.items()})[metric.primary]
    if n == 1:
        return np.array([float(whole)])
    without = metric.combine({key: (values.sum() - values) / (n - 1) for key, values in scores.items()})
    cells = n * whole - (n - 1) * without[metric.primary]
    return np.asarray(cells - cells.mean() + whole)


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

    The sample of a seed and of an example is drawn from all seeds and all examples. The variance of their mean is
    estimated from the mean squares of seeds, examples and rest (a random-effects model with two crossed factors), and
    Student's t has Satterthwaite's degrees of freedom. Below ``FEW`` seeds that is too narrow at times: there the
    interval adds up the variances of the means over seeds and over examples, with S - 1 degrees.
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
