"""``farspan evaluate``: scores of systems with intervals, and by groups of pairs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.options import keyword
from corpora.reporting import current, result
from corpora.settings import make
from corpora.storage.files import write_bytes
from corpora.storage.manifest_file import manifest_sha256
from objectives.metrics.bootstrap import INTERVAL, resample
from objectives.metrics.metrics import COPIED_NGRAM, load_metric
from objectives.metrics.protocol import Metric
from pipelines.evaluation.options import Evaluate, Evaluation
from pipelines.evaluation.report import draw, print_table
from pipelines.evaluation.systems import Questions, System, check_outputs, compute_copied, read_systems, word_counts
from pipelines.figures import check_figure

Scores = Mapping[str, np.ndarray]
Measured = dict[str, dict[str, float]]
Scored = tuple[Metric, list[dict[str, np.ndarray]]]
_MOST_VALUES = 24  # of an attribute, before its numbers are divided into bins


def command(options: Evaluate) -> None:
    """Run ``farspan evaluate``."""
    if options.figure:
        check_figure(options.figure)
    check_outputs({"--json": options.json, "--figure": options.figure}, options.predictions)
    table = table_of(options.predictions, options.evaluation)
    if current().log_format == "json":
        result(f"scores of {', '.join(options.predictions)}", **table)
    else:
        print_table(table)
    if options.json:
        write_bytes(options.json, (json.dumps(table, indent=1) + "\n").encode())
    if options.figure:
        draw(table, options.figure)
        result(f"figure: {options.figure}", figure=options.figure)


def evaluate(
    predictions: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    metrics: str | Sequence[str],
    *,
    pairs: str | os.PathLike[str] | None = None,
    documents: str | os.PathLike[str] | None = None,
    split: str | None = None,
    by: Sequence[str] = (),
    bins: int = 4,
    resamples: int = 1_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate predictions of one or several systems, with 95 % intervals from a paired bootstrap.

    Args:
        predictions: folders made by ``farspan generate``, or JSON files of ``{"id": "text"}``; one or several.
        metrics: names for ``objectives.metrics.metrics.load_metric``, e.g. ``scrolls:qasper``; several of one flavour.
        pairs: folder of the pairs, if it has moved since the predictions were made; needed for JSON files.
        documents: folder of their documents, if it has moved since the pairs were made.
        split: split of the pairs; needed for JSON files.
        by: attributes of the pairs; the pairs with each value of one are also scored separately, and those with each
            pair of values of the first two.
        bins: number of groups by the length of the documents, and by an attribute with many different numbers.
        resamples: number of resamples of the bootstrap.
        seed: seed of the bootstrap.

    Returns:
        The table that ``farspan evaluate --json`` writes (docs/evaluation.md).

    Raises:
        FarspanError: metrics of two flavours, predictions that cannot be compared, or a pair without a reference.
    """
    names = [predictions] if isinstance(predictions, str | os.PathLike) else predictions
    values = {"metrics": metrics, "pairs": pairs, "documents": documents, "split": split, "by": by}
    options = make(Evaluation, {**values, "bins": bins, "resamples": resamples, "seed": seed}, keyword)
    return table_of([os.fspath(name) for name in names], options)


def load_metrics(names: Sequence[str]) -> list[Metric]:
    """Load metrics that may stand in one table."""
    metrics = [load_metric(name) for name in dict.fromkeys(names)]
    if not metrics:
        raise FarspanError("no metric is named; give --metrics NAME, e.g. --metrics scrolls:qasper")
    rouge = [metric for metric in metrics if metric.family.startswith("rouge")]
    for metric in rouge[1:]:
        if metric.family != rouge[0].family:
            raise FarspanError(
                f"metrics {rouge[0].name} and {metric.name} are two flavours of ROUGE, whose numbers differ for the "
                "same texts (stemmer, ROUGE-L, sentences, aggregation); evaluate once for each"
            )
    return metrics


def table_of(predictions: Sequence[str], options: Evaluation) -> dict[str, Any]:
    """Compute the table of ``evaluate``."""
    metrics = load_metrics(options.metrics)
    if not predictions:
        raise FarspanError("no predictions are named; give folders made by `farspan generate`")
    questions, systems = read_systems(predictions, options.pairs, options.split, options.documents)
    scored: list[Scored] = []
    for metric in metrics:
        choices = questions.options if metric.needs_options else None
        scored.append((metric, [metric.scores(one.texts, questions.references, choices) for one in systems]))
    lengths = questions.document_lengths
    bins = [(lengths[rows], rows) for rows in length_bins(lengths, options.bins)]
    groups = {"document tokens": [(f"{group.min():,} to {group.max():,}", rows) for group, rows in bins]}
    by = list(dict.fromkeys(options.by))
    for name in by:
        groups[name] = group_rows(questions.attributes(name), options.bins)
    pairs = product(*(groups[name] for name in by[:2])) if len(by) > 1 else ()
    crossed = [([one, other], np.intersect1d(rows, others)) for (one, rows), (other, others) in pairs]
    return {
        "pairs": questions.pairs.folder,
        "pairs_sha256": manifest_sha256(questions.pairs.folder),
        "split": questions.split,
        "examples": len(questions.ids),
        "metrics": {metric.name: {"flavour": metric.flavour, "primary": metric.primary} for metric in metrics},
        "interval": {"percent": 95, "resamples": options.resamples, "seed": options.seed},
        "systems": _systems(questions, systems, scored, options),
        "groups": {name: [_group(*one, lengths, scored, options) for one in parts] for name, parts in groups.items()},
        "crossed": [_group(*one, lengths, scored, options) for one in crossed if len(one[1])],
    }


def group_rows(values: Sequence[str], bins: int) -> list[tuple[str, np.ndarray]]:
    """Group rows by ``n`` values; many different numbers are divided as ``length_bins`` does."""
    distinct = sorted(set(values), key=_by_size)
    if len(distinct) > _MOST_VALUES and not any(_by_size(value)[0] for value in distinct):
        numbers = np.array([float(value) for value in values])
        return [(f"{numbers[rows].min():,g} to {numbers[rows].max():,g}", rows) for rows in length_bins(numbers, bins)]
    known = np.array(values, object)
    return [(value, np.flatnonzero(known == value)) for value in distinct]


def length_bins(lengths: np.ndarray, bins: int) -> list[np.ndarray]:
    """Divide rows by their ``(n,)`` lengths into at most ``bins`` groups of nearly equal size, none empty.

    They are ordered from short to long; equal lengths stay together.
    """
    inner = np.quantile(lengths, np.arange(1, bins) / bins, method="inverted_cdf")
    groups = np.searchsorted(np.unique(inner), lengths, side="left")
    return [rows for group in range(bins) if len(rows := np.flatnonzero(groups == group))]


def _by_size(value: str) -> tuple[bool, float, str]:
    """Sort key of an attribute's value: numbers by size, other values after them."""
    number = re.fullmatch(r"-?\d+(\.\d+)?", value, re.ASCII)
    return number is None, float(value) if number else 0.0, value


def _measure_all(
    scored: Sequence[Scored], options: Evaluation, rows: np.ndarray | None = None
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Join the results of ``measure`` for all metrics, for each system; on some rows alone if ``rows`` is given."""
    tables: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {}) for _ in scored[0][1]]
    for metric, scores in scored:
        picked = scores if rows is None else [{key: values[rows] for key, values in one.items()} for one in scores]
        for whole, part in zip(tables, measure(metric, picked, options.resamples, options.seed), strict=True):
            whole[0].update(part[0])
            whole[1].update(part[1])
    return tables


def measure(metric: Metric, scores: Sequence[Scores], resamples: int, seed: int) -> list[tuple[Measured, Measured]]:
    """Compute the values of systems with their intervals, and the differences to the first system.

    All systems, each with ``(n,)`` scores by key, are resampled by the same n examples, so a difference has the
    interval of a paired comparison. The result has ``value``, ``low`` and ``high`` by key for each system, and the same
    of the difference, empty for the first.
    """
    means = [metric.combine(resample(system, resamples, seed)) for system in scores]
    values = [metric.aggregate(system) for system in scores]
    tables = []
    for number, (mean, value) in enumerate(zip(means, values, strict=True)):
        table = {key: _interval(value[key], mean[key]) for key in mean}
        difference = {key: _interval(value[key] - values[0][key], mean[key] - means[0][key]) for key in mean}
        tables.append((table, difference if number else {}))
    return tables


def _interval(value: float, resampled_values: np.ndarray) -> dict[str, float]:
    low, high = np.percentile(resampled_values, INTERVAL)
    return {"value": round(value, 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def _systems(
    questions: Questions, systems: Sequence[System], scored: Sequence[Scored], options: Evaluation
) -> list[dict[str, Any]]:
    reference_words = np.array([word_counts(texts).mean() for texts in questions.references])
    entries = []
    numbers = zip(systems, _measure_all(scored, options), compute_copied(questions, systems), strict=True)
    for system, (scores, differences), shares in numbers:
        words = word_counts(system.texts)
        entries.append(
            {
                "name": system.name,
                "scores": scores,
                "differences": differences,
                "predicted_words": round(float(words.mean()), 4),
                "reference_words": round(float(reference_words.mean()), 4),
                "empty": int((words == 0).sum()),
                # the mean over the predictions that have words; None if none has
                f"copied_{COPIED_NGRAM}grams": None if np.isnan(shares).all() else round(float(np.nanmean(shares)), 4),
                **system.config,
            }
        )
    return entries


def _group(
    name: str | list[str], rows: np.ndarray, lengths: np.ndarray, scored: Sequence[Scored], options: Evaluation
) -> dict[str, Any]:
    """Scores of a group of examples by the metrics' primary keys, one entry for each system."""
    primary = [metric.primary for metric, _ in scored]
    numbers = _measure_all(scored, options, rows)
    return {
        "name": name,
        "examples": len(rows),
        "median_document_tokens": int(np.median(lengths[rows])),
        "scores": [{key: values[key] for key in primary} for values, _ in numbers],
    }
