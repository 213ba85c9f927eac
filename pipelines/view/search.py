"""Bounded search for the next row that matches a filter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.pages.filters import Filter
from pipelines.pages.page import Subject

ROWS = 20_000  # rows examined per request
TOKENS = 400_000  # tokens decoded per request


@dataclass(frozen=True, slots=True)
class Match:
    """The result of one bounded search.

    Attributes:
        row: matching row; None if there is none.
        next: row from which to continue; None if no rows are left.
        looked_at: number of rows examined.
    """

    row: int | None
    next: int | None
    looked_at: int


def search(subject: Subject, wanted: Filter, start: int, step: int) -> Match:
    """Search for the first row that matches ``wanted``, from ``start`` upwards (``step`` 1) or downwards (-1).

    The search ends after ``ROWS`` rows or ``TOKENS`` decoded tokens; another one continues from ``Match.next``.
    """
    if wanted.rows:
        return _search_listed(subject, wanted, start, step)
    row, looked, decoded = start, 0, 0
    while 0 <= row < len(subject):
        if looked >= ROWS or decoded >= TOKENS:
            return Match(None, row, looked)
        first, stop = subject.batch_of(row)
        first, stop = (row, stop) if step > 0 else (first, row + 1)
        fits = subject.matches(first, stop, wanted)
        for place in np.flatnonzero(fits).tolist()[::step]:
            if decoded >= TOKENS:
                return Match(None, first + place, looked)
            read, there = _has_text(subject, first + place, wanted.text)
            decoded += read
            if there:
                return Match(first + place, first + place, looked + abs(first + place - row) + 1)
        looked += stop - first
        row = stop if step > 0 else first - 1
    return Match(None, None, looked)


def _search_listed(subject: Subject, wanted: Filter, start: int, step: int) -> Match:
    looked = 0
    for row in wanted.rows[::step]:
        if (row - start) * step >= 0 and 0 <= row < len(subject):
            looked += 1
            if subject.matches(row, row + 1, wanted)[0] and _has_text(subject, row, wanted.text)[1]:
                return Match(row, row, looked)
            if looked >= ROWS:
                return Match(None, row + step, looked)
    return Match(None, None, looked)


def _has_text(subject: Subject, row: int, text: str) -> tuple[int, bool]:
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
