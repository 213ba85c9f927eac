"""The tables of a study on its page: a row for each arm, with a picture of its difference to the baseline."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from corpora.storage.files import read_user_json
from pipelines.study.report import TABLE, is_study

WIDTH = 240  # pixels of a picture, whose middle is no difference
_MARGIN = 5


def read_tables(folders: Sequence[str]) -> list[dict[str, Any]]:
    """Read the tables of the studies among ``folders``, as ``farspan study`` writes them, with ``places`` of each row.

    ``places`` are pixels from the left: of the interval as ``(low, high)``, or None, and of the seeds' ``dots``.
    """
    tables: list[dict[str, Any]] = []
    for folder in folders:
        if is_study(folder) and os.path.exists(path := os.path.join(folder, TABLE)):
            tables += read_user_json(path)
    for table in tables:
        rows = table["rows"]
        (base,) = (row["value"] for row in rows if row["arm"] == table["baseline"])
        table["width"] = WIDTH
        scale = max([abs(value) for row in rows for value in _values(row, base)], default=0) or 1.0
        for row in rows:
            row["places"] = {
                "dots": [_place(value, scale) for value in _dots(row, base)],
                "interval": None if row["low"] is None else [_place(row[end], scale) for end in ("low", "high")],
            }
    return tables


def _dots(row: Mapping[str, Any], base: float) -> list[float]:
    """The difference of each seed; of the baseline, and without pairs, to the baseline's mean."""
    return row["differences"] or [value - base for value in row["values"]]


def _values(row: Mapping[str, Any], base: float) -> list[float]:
    return [*_dots(row, base), *(row[end] for end in ("low", "high") if row[end] is not None)]


def _place(value: float, scale: float) -> float:
    half = WIDTH / 2
    return round(half + value / scale * (half - _MARGIN), 1)
