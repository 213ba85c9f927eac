"""Measures of rows, the columns of a table, and their histograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

ALL, SOME, FEW = 131_072, 16_384, 256
"""Rows that a column is read for, by its cost; of a longer artefact, a sample of as many is read in whole batches."""
_BINS, _NAMES = 24, 8  # maximum bars of a histogram of numbers, and of names
_TAIL = 0.5  # percent of the values at either end that the outer bars collect


@dataclass(frozen=True, slots=True)
class Measure:
    """A property of each row.

    Attributes:
        key: name in addresses.
        title: heading of the column.
        read: function from the first and last + 1 row in one batch to their values, ``(n,)`` float64, nan for none; or
            ``(n,)`` objects of str.
        rows: maximum number of rows to read at once.
        decimals: digits after the point; None for names.
        filters: parameters of the filter that bound it, least and most; for names, one.
        fixed: further parameters of such a filter.
    """

    key: str
    title: str
    read: Callable[[int, int], np.ndarray]
    rows: int = ALL
    decimals: int | None = 0
    filters: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a histogram: its share of the highest, its label, and the parameters of a filter for its rows."""

    height: float
    label: str
    filter: dict[str, str]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of ``rows`` values with their range in words."""

    bars: tuple[Bar, ...]
    ends: str
    rows: int


def histogram(values: np.ndarray, measure: Measure) -> Histogram:
    """Count the ``(n,)`` values of a measure."""
    if measure.decimals is None:
        names, counts = np.unique(values.astype(str), return_counts=True)
        first = np.argsort(-counts, kind="stable")[:_NAMES]
        counts, names = counts[first], names[first].tolist()
        labels = [(name, dict.fromkeys(measure.filters, name)) for name in names]
        ends = f"{names[0]} {counts[0] / len(values):.0%}" if len(values) else ""
    else:
        counts, labels, ends = _bins(values[~np.isnan(values)], measure)
    highest = max(counts.tolist(), default=1)
    bars = [
        Bar(
            count / highest,
            f"{label}: {count:,}",
            {**dict.fromkeys(measure.filters, ""), **bounds, **dict(measure.fixed)} if bounds else {},
        )
        for count, (label, bounds) in zip(counts.tolist(), labels, strict=True)
    ]
    return Histogram(tuple(bars), ends, len(values))


def _bins(values: np.ndarray, measure: Measure) -> tuple[np.ndarray, list[tuple[str, dict[str, str]]], str]:
    """Counts of ``(n,)`` values in bins of equal width, their labels and filters, and the range in words."""
    if not len(values):
        return np.zeros(0, np.int64), [], ""
    unit = 10.0 ** -(measure.decimals or 0)
    low, high = (math.floor(value / unit) for value in np.percentile(values, [_TAIL, 100 - _TAIL]))
    step = max(-(-(high - low + 1) // _BINS), 1)
    starts = np.arange(low, high + 1, step) * unit  # the outer bins take what lies beyond
    places = np.searchsorted(starts, values + unit / 1e6, side="right") - 1
    counts = np.bincount(np.maximum(places, 0), minlength=len(starts))
    least, most = (*measure.filters, "", "")[:2]
    labels = []
    for place, start in enumerate(starts.tolist()):
        end = place + 1 == len(starts)
        last = values.max() if end else starts[place + 1] - unit
        shown = [words(value, measure.decimals) for value in (start if place else values.min(), last)]
        bounds = {} if not place else {least: f"{start:.10g}"}
        if not end:
            bounds[most] = f"{last if not measure.decimals else starts[place + 1] - unit / 1e3:.10g}"
        labels.append((" to ".join(dict.fromkeys(shown)), bounds if least else {}))
    ends = " to ".join(dict.fromkeys(words(value, measure.decimals) for value in (values.min(), values.max())))
    return counts, labels, ends


def words(value: float | str, decimals: int | None) -> str:
    """A value of a measure in words; empty for nan."""
    if decimals is None or isinstance(value, str):
        return str(value)
    return "" if math.isnan(value) else f"{value:,.{decimals}f}"
