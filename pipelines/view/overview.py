"""The overview of a folder: the ancestry of what it holds as a picture, and the tables of studies."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpora.storage.files import read_user_json
from pipelines.pages.catalog import Entry
from pipelines.study.report import TABLE, differences_of, is_study

WIDTH, HEIGHT = 168, 44  # of a box
_ACROSS, _DOWN = 40, 12  # between two boxes
_PICTURE, _MARGIN = 240, 5  # pixels of the picture of a difference, whose middle is none


@dataclass(frozen=True)
class Graph:
    """Boxes as (entry, x, y) of their upper left corners, and edges as paths of SVG."""

    boxes: tuple[tuple[Entry, int, int], ...]
    edges: tuple[str, ...]
    width: int
    height: int


def draw_graph(entries: Sequence[Entry]) -> Graph:
    """Lay out entries in columns by their longest line of ancestors, each near the mean height of its parents."""
    by_name = {entry.name: entry for entry in entries}
    depths: dict[str, int] = {}
    for entry in entries:
        _find_depth(entry, by_name, depths, ())
    columns: dict[int, list[Entry]] = {}
    for entry in entries:
        columns.setdefault(depths[entry.name], []).append(entry)
    places: dict[str, tuple[int, int]] = {}
    for depth in sorted(columns):
        column = sorted(columns[depth], key=lambda entry: _mean_height(entry, places))
        bottom = 0
        for entry in column:
            y = bottom if depth == 0 else max(bottom, int(_mean_height(entry, places)))
            places[entry.name] = (depth * (WIDTH + _ACROSS), y)
            bottom = y + HEIGHT + _DOWN
    edges = tuple(
        _edge(places[parent], places[entry.name], places.values())
        for entry in entries
        for parent in entry.parents
        if not any(parent in by_name[other].parents for other in entry.parents)  # the line through the other says it
    )
    boxes = tuple((entry, *places[entry.name]) for entry in entries)
    width = max((x for _, x, _ in boxes), default=0) + WIDTH
    return Graph(boxes, edges, width, max((y for _, _, y in boxes), default=0) + HEIGHT + _DOWN)


def _find_depth(entry: Entry, by_name: Mapping[str, Entry], depths: dict[str, int], above: tuple[str, ...]) -> int:
    """Length of the longest line of ancestors; an edge that would close a circle does not count."""
    if entry.name not in depths:
        parents = [by_name[name] for name in entry.parents if name not in above]
        found = [_find_depth(parent, by_name, depths, (*above, entry.name)) + 1 for parent in parents]
        depths[entry.name] = max(found, default=0)
    return depths[entry.name]


def _mean_height(entry: Entry, places: Mapping[str, tuple[int, int]]) -> float:
    heights = [places[name][1] for name in entry.parents if name in places]
    return sum(heights) / len(heights) if heights else 0.0


def _edge(parent: tuple[int, int], child: tuple[int, int], boxes: Iterable[tuple[int, int]]) -> str:
    """A line to the next column, or to a later one between the boxes of the columns in between."""
    x, y = parent[0] + WIDTH, parent[1] + HEIGHT // 2
    end, height = child[0], child[1] + HEIGHT // 2
    passed = [top for left, top in boxes if x < left < end]
    if not passed:
        return f"M{x} {y}{_curve(x, end, y, height)}"
    gaps = [top + HEIGHT + _DOWN // 2 for top in passed]
    free = [gap for gap in gaps if not any(top <= gap <= top + HEIGHT for top in passed)]
    gap = min(free, key=lambda gap: abs(gap - (y + height) / 2))
    first, last = x + _ACROSS, end - _ACROSS
    return f"M{x} {y}{_curve(x, first, y, gap)}H{last}{_curve(last, end, gap, height)}"


def _curve(x: int, end: int, y: int, height: int) -> str:
    middle = (x + end) // 2
    return f"C{middle} {y} {middle} {height} {end} {height}"


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
        table["width"] = _PICTURE
        scale = max([abs(value) for row in rows for value in _values(row, base)], default=0) or 1.0
        for row in rows:
            row["places"] = {
                "dots": [_place(value, scale) for value in differences_of(row, base)],
                "interval": None if row["low"] is None else [_place(row[end], scale) for end in ("low", "high")],
            }
    return tables


def _values(row: Mapping[str, Any], base: float) -> list[float]:
    return [*differences_of(row, base), *(row[end] for end in ("low", "high") if row[end] is not None)]


def _place(value: float, scale: float) -> float:
    half = _PICTURE / 2
    return round(half + value / scale * (half - _MARGIN), 1)
