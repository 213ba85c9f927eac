"""The rows of a subject as a table, sorted and filtered by columns that are read in whole batches, with histograms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from corpora.errors import FarspanError, nearest
from corpora.storage import files
from pipelines.pages.filters import TOKENS, Filter, has_text, matches
from pipelines.pages.page import ALL, FEW, SOME, Measure, Subject

SHOWN = 50  # rows per page of the table
_BINS, _NAMES = 24, 8  # maximum bars of a histogram of numbers, and of names
_TAIL = 0.5  # percent of the values at either end that the outer bars collect


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: its number, id, the values of all measures in words, and the beginning of its text."""

    row: int
    id: str
    values: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of the table."""

    lines: tuple[Line, ...]  # rows of the page
    count: int  # number of rows that fit, before a text is compared
    of: int  # number of rows that were compared, fewer than all for a sample
    next: int | None  # place in the order from which the next page begins; None on the last


class Table:
    """A subject's rows as a table. What was read stays in memory."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.measures = subject.measures
        self._column = lru_cache(maxsize=None)(self._read_column)
        self._order = lru_cache(maxsize=16)(self._sort)
        self._fitting = lru_cache(maxsize=16)(self._filter)
        self.histogram = lru_cache(maxsize=None)(lambda measure: histogram(self._column(measure)[1], measure))

    def page(self, wanted: Filter, sort: str, start: int) -> TablePage:
        """Return the page from place ``start`` of the order on.

        ``sort`` is the key of a measure, with ``-`` before it for descending order; empty for the order of the rows.
        """
        rows, of = self._order(replace(wanted, text=""), sort)
        lines: list[Line] = []
        place, decoded = max(start, 0), 0
        while place < len(rows) and len(lines) < SHOWN and decoded < TOKENS:
            read, there = has_text(self._subject, int(rows[place]), wanted.text)
            decoded += read
            if there:
                row = int(rows[place])
                values = tuple(words(one.read(row, row + 1)[0], one.decimals) for one in self.measures)
                name, text = self._subject.beginning(row)
                lines.append(Line(row, name, values, text))
            place += 1
        return TablePage(tuple(lines), len(rows), of, place if place < len(rows) else None)

    def _limit(self, rows: int) -> int:
        return rows if files.is_local(self._subject.folder) else min(rows, FEW)

    def _sample(self, limit: int) -> np.ndarray:
        """All rows, or evenly spread whole batches of about ``limit`` in all; ``(n,)`` int64, ascending."""
        total = len(self._subject)
        if total <= limit:
            return np.arange(total)
        size = max(np.subtract(*self._subject.batch_of(0)[::-1]), 1)
        firsts = np.linspace(0, total - 1, max(limit // size, 1), dtype=np.int64)
        spans = dict.fromkeys(self._subject.batch_of(row) for row in firsts.tolist())
        return np.concatenate([np.arange(*span) for span in spans])

    def _read(self, rows: np.ndarray, read: Callable[[int, int], np.ndarray]) -> np.ndarray:
        """Values of ascending ``(n,)`` rows, batch by batch; n at least 1."""
        values, place = [], 0
        while place < len(rows):
            stop = min(self._subject.batch_of(int(rows[place]))[1], int(rows[-1]) + 1)
            end = int(np.searchsorted(rows, stop))
            chosen = rows[place:end]
            values.append(read(int(chosen[0]), int(chosen[-1]) + 1)[chosen - chosen[0]])
            place = end
        return np.concatenate(values)

    def _read_column(self, measure: Measure) -> tuple[np.ndarray, np.ndarray]:
        rows = self._sample(self._limit(measure.rows))
        return rows, self._read(rows, measure.read)

    def _filter(self, wanted: Filter) -> tuple[np.ndarray, int]:
        """The rows that fit, and the number of rows that were compared."""
        if not wanted.reads:
            rows = np.array([row for row in wanted.rows if row < len(self._subject)], np.int64)
            return (rows, len(rows)) if wanted.rows else (np.arange(len(self._subject)), len(self._subject))
        cheap = replace(wanted, least=None, most=None, rows=())
        rows = self._sample(self._limit(SOME if cheap.reads else ALL))
        if wanted.rows:
            rows = np.intersect1d(np.array(wanted.rows), np.arange(len(self._subject)))
        fits = self._read(rows, partial(matches, self._subject, wanted=wanted)) if len(rows) else rows
        return rows[fits.astype(bool)], len(rows)

    def _sort(self, wanted: Filter, sort: str) -> tuple[np.ndarray, int]:
        rows, of = self._fitting(wanted)
        if not sort or not len(rows):
            return rows, of
        measure = self._measure(sort.removeprefix("-"))
        known, values = self._column(measure)
        if len(rows) == len(self._subject):
            rows, of = known, len(known)
        elif len(known) == len(self._subject):
            values = values[rows]
        else:
            step = -(-len(rows) // self._limit(measure.rows))
            rows, of = rows[::step], of // step
            values = self._read(rows, measure.read)
        keys = np.unique(values, return_inverse=True)[1] if measure.decimals is None else values
        order = np.argsort(-keys if sort.startswith("-") else keys, kind="stable")  # nan comes last
        return rows[order], of

    def _measure(self, key: str) -> Measure:
        known = {measure.key: measure for measure in self.measures}
        if key not in known:
            raise FarspanError(f"sort={key[:40]!r}: no column of {self._subject.name}{nearest(key, known)}")
        return known[key]


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
