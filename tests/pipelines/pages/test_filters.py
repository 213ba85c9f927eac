"""Searches for rows that fit a filter, in bounded steps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipelines.pages import filters
from pipelines.pages.filters import Filter, Match, search
from pipelines.pages.page import Measure


class Numbers:
    """A subject of so many rows; row n has n tokens and the text ``row N``, and its batches have ten rows."""

    def __init__(self, rows: int) -> None:
        self.rows, self.read, self.mask_sets = rows, [], ()
        self.measures = (Measure("tokens", "tokens", self.numbers, filters=("least", "most")),)

    def __len__(self) -> int:
        return self.rows

    def batch_of(self, row: int) -> tuple[int, int]:
        return row // 10 * 10, min(row // 10 * 10 + 10, self.rows)

    def numbers(self, start: int, stop: int) -> np.ndarray:
        self.read.append((start, stop))
        return np.arange(start, stop)

    def texts(self, row: int) -> Sequence[tuple[int, str]]:
        return [(1, "ro"), (1, f"W {row}")]


@pytest.mark.parametrize(
    ("wanted", "start", "step", "row", "looked"),
    [
        (Filter(), 7, 1, 7, 1),
        (Filter(least=33), 0, 1, 33, 34),
        (Filter(least=33), 40, 1, 40, 1),
        (Filter(most=33), 80, -1, 33, 48),
        (Filter(most=33), 34, 1, 0, 67),  # around the end
        (Filter(least=90), 12, -1, 99, 14),
        (Filter(least=33, most=20), 63, 1, None, 100),
        (Filter(least=33, most=20), 63, -1, None, 100),
        (Filter(text="row 58"), 0, 1, 58, 59),
        (Filter(text="row 58"), 59, 1, 58, 100),
        (Filter(text="ROW 5"), 99, -1, 59, 41),
        (Filter(text="row x"), 5, 1, None, 100),
        (Filter(rows=(3, 17, 64)), 4, 1, 17, 1),
        (Filter(rows=(3, 17, 64)), 16, -1, 3, 1),
        (Filter(rows=(3, 17, 64)), 65, 1, 3, 1),
        (Filter(rows=(3, 17, 64), least=18), 0, 1, 64, 3),
        (Filter(rows=(3, 17, 640), least=18), 18, 1, None, 2),
        (Filter(), -1, -1, 99, 1),
        (Filter(), 100, 1, 0, 1),
    ],
)
@pytest.mark.parametrize("bounded", [False, True])
def test_a_search_looks_at_each_row_once(monkeypatch, wanted, start, step, row, looked, bounded):
    if bounded:
        monkeypatch.setattr(filters, "ROWS", 10)
        monkeypatch.setattr(filters, "TOKENS", 6)
    subject: Any = Numbers(100)
    total, match = 0, Match(None, start, 0)
    for _ in range(1_000):
        match = search(subject, wanted, match.next, step, 100 - total)
        total += match.looked_at
        if match.row is not None or match.next is None:
            break
    assert (match.row, total) == (row, looked)


def test_one_search_reads_no_more_than_it_may(monkeypatch):
    monkeypatch.setattr(filters, "ROWS", 30)
    subject: Any = Numbers(10**9)
    assert search(subject, Filter(least=10**8), 5, 1) == Match(None, 30 + 10, 35)
    assert subject.read == [(5, 10), (10, 20), (20, 30), (30, 40)]
    monkeypatch.setattr(filters, "TOKENS", 8)
    assert search(subject, Filter(text="x"), 2, 1) == Match(None, 6, 4)
