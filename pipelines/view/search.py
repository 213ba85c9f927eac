"""The bounded search for the next row that a filter wants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.view.filters import Filter
from pipelines.view.page import Subject

ROWS = 20_000  # looked at in one request
TOKENS = 400_000  # decoded in one request


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one bounded search.

    Attributes:
        row: the row found, None if none was.
        next: the row to go on from, None where there is none left.
        looked_at: rows looked at.
    """

    row: int | None
    next: int | None
    looked_at: int


def search(subject: Subject, wanted: Filter, start: int, step: int) -> Found:
    """Look for the first row that ``wanted`` wants, from ``start`` on upwards (``step`` 1) or downwards (-1).

    It ends after ``ROWS`` rows or ``TOKENS`` decoded tokens; ``Found.next`` is where another one goes on.
    """
    if wanted.rows:
        return _search_listed(subject, wanted, start, step)
    row, looked, decoded = start, 0, 0
    while 0 <= row < len(subject):
        if looked >= ROWS or decoded >= TOKENS:
            return Found(None, row, looked)
        first, stop = subject.batch_of(row)
        first, stop = (row, stop) if step > 0 else (first, row + 1)
        fits = subject.matches(first, stop, wanted)
        for place in np.flatnonzero(fits).tolist()[::step]:
            if decoded >= TOKENS:
                return Found(None, first + place, looked)
            read, there = _has_text(subject, first + place, wanted.text)
            decoded += read
            if there:
                return Found(first + place, first + place, looked + abs(first + place - row) + 1)
        looked += stop - first
        row = stop if step > 0 else first - 1
    return Found(None, None, looked)


def _search_listed(subject: Subject, wanted: Filter, start: int, step: int) -> Found:
    looked = 0
    for row in wanted.rows[::step]:
        if (row - start) * step >= 0 and 0 <= row < len(subject):
            looked += 1
            if subject.matches(row, row + 1, wanted)[0] and _has_text(subject, row, wanted.text)[1]:
                return Found(row, row, looked)
            if looked >= ROWS:
                return Found(None, row + step, looked)
    return Found(None, None, looked)


def _has_text(subject: Subject, row: int, text: str) -> tuple[int, bool]:
    """Number of tokens decoded, and whether the row has the text."""
    if not text:
        return 0, True
    asked, read, before = text.casefold(), 0, ""
    for tokens, piece in subject.texts(row):
        read += tokens
        here = before + piece.casefold()
        if asked in here:
            return read, True
        before = here[-len(asked) :]  # a text may lie across two pieces
    return read, False
