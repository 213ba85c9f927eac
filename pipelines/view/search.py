"""Bounded search for the next row that matches a filter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.pages.filters import Filter
from pipelines.pages.page import Subject
from pipelines.pages.table import has_text

ROWS = 20_000  # rows examined per request
TOKENS = 400_000  # tokens decoded per request


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
