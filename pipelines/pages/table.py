"""The rows of a subject: as a table, sorted and filtered by columns that are read in whole batches, and searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from corpora.errors import FarspanError, nearest
from corpora.storage import files
from pipelines.pages.filters import Filter
from pipelines.pages.measures import ALL, FEW, SOME, Measure, histogram, words
from pipelines.pages.page import Subject

SHOWN = 50  # rows per page of the table
TOKENS = 400_000  # tokens decoded per request in search of a text
ROWS = 20_000  # rows examined per request in search of the next one


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: its number, id, the values of all measures in words, and the beginning of its text."""

    row: int
    id: str
    values: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of the table.

    Attributes:
        lines: rows of the page.
        count: number of rows that fit, before a text is compared.
        of: number of rows that were compared, fewer than all for a sample.
        next: place in the order from which the next page begins; None on the last.
    """

    lines: tuple[Line, ...]
    count: int
    of: int
    next: int | None


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

        Args:
            sort: key of a measure, with ``-`` before it for descending order; empty for the order of the rows.
        """
        rows, of = self._order(replace(wanted, text=""), sort)
        lines: list[Line] = []
        place, decoded = max(start, 0), 0
        while place < len(rows) and len(lines) < SHOWN and decoded < TOKENS:
            read, there = has_text(self._subject, int(rows[place]), wanted.text)
            decoded += read
            if there:
                lines.append(self._line(int(rows[place])))
            place += 1
        return TablePage(tuple(lines), len(rows), of, place if place < len(rows) else None)

    def _line(self, row: int) -> Line:
        values = tuple(words(one.read(row, row + 1)[0], one.decimals) for one in self.measures)
        name, text = self._subject.beginning(row)
        return Line(row, name, values, text)

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
        fits = self._read(rows, lambda start, stop: self._subject.matches(start, stop, wanted)) if len(rows) else rows
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


def has_text(subject: Subject, row: int, text: str) -> tuple[int, bool]:
    """Search a row for a text; return the number of tokens decoded, and True if the row has the text."""
    if not text:
        return 0, True
    wanted, read, before = text.casefold(), 0, ""
    for tokens, piece in subject.texts(row):
        read += tokens
        here = before + piece.casefold()
        if wanted in here:
            return read, True
        before = here[-len(wanted) :]  # the text may lie across two pieces
    return read, False


@dataclass(frozen=True, slots=True)
class Match:
    """The result of one bounded search.

    Attributes:
        row: matching row; None if there is none.
        next: row from which to continue; None if each row was examined.
        looked_at: number of rows examined.
    """

    row: int | None
    next: int | None
    looked_at: int


def search(subject: Subject, wanted: Filter, start: int, step: int, left: int | None = None) -> Match:
    """Search for the first row that matches ``wanted``, from ``start`` upwards (``step`` 1) or downwards (-1).

    After the last row comes the first; ``left`` rows are examined at most, None for each row once. The search ends
    after ``ROWS`` rows or ``TOKENS`` decoded tokens; another one continues from ``Match.next``.
    """
    total = len(subject)
    left = total if left is None else min(left, total)
    if wanted.rows:
        return _search_listed(subject, wanted, start, step, left)
    row, looked, decoded = start % max(total, 1), 0, 0
    while looked < left:
        if looked >= ROWS or decoded >= TOKENS:
            return Match(None, row, looked)
        first, stop = subject.batch_of(row)
        most = left - looked
        first, stop = (row, min(stop, row + most)) if step > 0 else (max(first, row + 1 - most), row + 1)
        fits = subject.matches(first, stop, wanted)
        for place in (first + np.flatnonzero(fits)).tolist()[::step]:
            if decoded >= TOKENS:
                return Match(None, place, looked + abs(place - row))
            read, there = has_text(subject, place, wanted.text)
            decoded += read
            if there:
                return Match(place, place, looked + abs(place - row) + 1)
        looked += stop - first
        row = (stop if step > 0 else first - 1) % total
    return Match(None, None, looked)


def _search_listed(subject: Subject, wanted: Filter, start: int, step: int, left: int) -> Match:
    rows = [row for row in wanted.rows if 0 <= row < len(subject)][::step]
    first = next((place for place, row in enumerate(rows) if (row - start) * step >= 0), 0)
    rows = (rows[first:] + rows[:first])[:left]
    for looked, row in enumerate(rows, 1):
        if subject.matches(row, row + 1, wanted)[0] and has_text(subject, row, wanted.text)[1]:
            return Match(row, row, looked)
        if ROWS <= looked < len(rows):
            return Match(None, rows[looked], looked)
    return Match(None, None, len(rows))
