"""Searches that stop in time and go on where they stopped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from pipelines.pages.filters import Filter, within
from pipelines.view import search as searches
from pipelines.view.search import Match, search


class Numbers:
    """A subject of so many rows; row n has n tokens and the text ``row N``, and its batches have ten rows."""

    def __init__(self, rows: int) -> None:
        self.rows, self.read = rows, []

    def __len__(self) -> int:
        return self.rows

    def batch_of(self, row: int) -> tuple[int, int]:
        return row // 10 * 10, min(row // 10 * 10 + 10, self.rows)

    def matches(self, start: int, stop: int, wanted: Filter) -> np.ndarray:
        self.read.append((start, stop))
        return within(np.arange(start, stop), wanted.least, wanted.most)

    def texts(self, row: int) -> Sequence[tuple[int, str]]:
        return [(1, "ro"), (1, f"W {row}")]


def all_found(subject, wanted: Filter, start: int, step: int) -> Match:
    """The end of a search that is continued."""
    looked = 0
    for _ in range(1_000):
        found = search(subject, wanted, start, step)
        looked += found.looked_at
        if found.row is not None or found.next is None:
            return Match(found.row, found.next, looked)
        assert found.next != start
        start = found.next
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("wanted", "start", "step", "row"),
    [
        (Filter(), 7, 1, 7),
        (Filter(least=33), 0, 1, 33),
        (Filter(least=33), 40, 1, 40),
        (Filter(most=33), 80, -1, 33),
        (Filter(least=33, most=20), 0, 1, None),
        (Filter(text="row 58"), 0, 1, 58),
        (Filter(text="ROW 5"), 99, -1, 59),
        (Filter(text="row x"), 0, 1, None),
        (Filter(rows=(3, 17, 64)), 4, 1, 17),
        (Filter(rows=(3, 17, 64)), 16, -1, 3),
        (Filter(rows=(3, 17, 64), least=18), 0, 1, 64),
        (Filter(rows=(3, 17, 640)), 18, 1, None),
        (Filter(), -1, -1, None),
        (Filter(), 100, 1, None),
    ],
)
@pytest.mark.parametrize("bounded", [False, True])
def test_the_next_row_that_fits(monkeypatch, wanted, start, step, row, bounded):
    if bounded:
        monkeypatch.setattr(searches, "ROWS", 10)
        monkeypatch.setattr(searches, "TOKENS", 6)
    assert all_found(Numbers(100), wanted, start, step).row == row


def test_one_search_reads_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(searches, "ROWS", 30)
    subject = Numbers(10**9)
    found = search(subject, Filter(least=10**8), 5, 1)
    assert found == Match(None, 30 + 10, 35)
    assert subject.read == [(5, 10), (10, 20), (20, 30), (30, 40)]
    monkeypatch.setattr(searches, "TOKENS", 8)
    assert search(Numbers(10**9), Filter(text="x"), 2, 1) == Match(None, 6, 0)
