"""Filters of rows, and bounded search for the next row that fits one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows
from pipelines.pages.page import Subject

ROWS = 20_000  # rows examined per request in search of the next one
TOKENS = 400_000  # tokens decoded per request in search of a text


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Conditions on a row; all that are given must hold."""

    source: str = ""  # name of the source of one of its documents
    id: str = ""  # part of the id of the row, or of one of its documents
    text: str = ""  # text that it contains, ignoring case
    least: int | None = None  # bounds of its number of tokens
    most: int | None = None
    # bounds of the percentage of its tokens that mask set `masks` puts into the target
    least_hidden: float | None = None
    most_hidden: float | None = None
    masks: int = 0
    rows: tuple[int, ...] = ()  # row numbers; empty for all

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Filter:
        """Read a filter from the parameters of an address; others are ignored."""
        values: dict[str, Any] = {}
        for name in (field.name for field in fields(cls)):
            text = parameters.get(name, "")
            text = text if name == "text" else text.strip()
            if not text:
                continue
            read, needed = _READERS.get(name, (str, ""))
            try:
                values[name] = read(text)
            except ValueError:
                raise FarspanError(f"filter {name}={text[:40]!r}: give {needed}") from None
        return cls(**values)

    @property
    def reads(self) -> bool:
        """True if rows have to be read to apply it."""
        return replace(self, masks=0, rows=()) != Filter()


def whole_number(text: str) -> int:
    """Read a whole number."""
    value = int(text)
    if abs(value) > 1 << 40:
        raise ValueError
    return value


_TOKENS, _SHARE = (whole_number, "a number of tokens"), (float, "a percentage")
_READERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "least": _TOKENS,
    "most": _TOKENS,
    "least_hidden": _SHARE,
    "most_hidden": _SHARE,
    "masks": (whole_number, "the number of a mask set"),
    "rows": (
        lambda text: tuple(sorted({whole_number(part) for part in text.split(",")})),
        "row numbers, as in 3,17,204",
    ),
}
"""Field -> function that reads it from a text, and what it needs."""


def matches(subject: Subject, start: int, stop: int, wanted: Filter) -> np.ndarray:
    """``(stop - start,)`` bool: rows of one batch that fit a filter, whose text is not compared yet."""
    fits = np.ones(stop - start, bool)
    if wanted.source or wanted.id:
        names, documents = subject.ids(start, stop)
        if wanted.source:
            fits &= _any_of_row(documents, pc.starts_with(documents.flatten(), wanted.source + ":"))
        if wanted.id:
            of_row = pc.match_substring(names, wanted.id).to_numpy(zero_copy_only=False)
            fits &= of_row | _any_of_row(documents, pc.match_substring(documents.flatten(), wanted.id))
    masks = str(min(max(wanted.masks, 0), max(len(subject.mask_sets) - 1, 0)))
    for measure in subject.measures:
        least, most = (getattr(wanted, name) for name in measure.filters) if len(measure.filters) == 2 else (None, None)
        places = np.flatnonzero(fits)
        if (least, most) == (None, None) or not len(places) or dict(measure.fixed).get("masks", masks) != masks:
            continue
        values = measure.read(start + int(places[0]), start + int(places[-1]) + 1)[places - places[0]]
        low, high = (-np.inf if least is None else least), (np.inf if most is None else most)
        fits[places] = (values >= low) & (values <= high)
    return fits


def _any_of_row(lists: pa.Array, matching: pa.Array) -> np.ndarray:
    """``(rows,)`` bool: rows of a list column with a matching value; ``matching`` has a bool per flattened value."""
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    hits = owners[matching.to_numpy(zero_copy_only=False)]
    return np.bincount(hits, minlength=len(lists)) > 0


def batch_bounds(rows: ShardedRows, row: int) -> tuple[int, int]:
    """First and last + 1 row of the record batch that holds ``row``."""
    shard, _, inside = rows.locate_row(row)
    first = row - inside
    return first, min(first + rows.manifest.rows_per_batch, int(rows.starts[shard + 1]))


def list_lengths(rows: ShardedRows, column: str, start: int, stop: int) -> np.ndarray:
    """``(n,)`` float64 lengths of the lists of a column, in rows ``start:stop`` of one record batch; reads offsets."""
    return np.diff(read_rows(rows, start, stop).column(column).offsets.to_numpy()).astype(np.float64)


def read_column(rows: ShardedRows, column: str, start: int, stop: int) -> np.ndarray:
    """``(n,)`` values of a column in rows ``start:stop`` of one record batch."""
    return read_rows(rows, start, stop).column(column).to_numpy(zero_copy_only=False)


def read_rows(rows: ShardedRows, start: int, stop: int) -> pa.RecordBatch:
    """Rows ``start:stop``, which lie in one record batch; a view."""
    shard, batch, inside = rows.locate_row(start)
    return rows.batch(shard, batch).slice(inside, stop - start)


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
    """The result of one bounded search."""

    row: int | None  # matching row; None if there is none
    next: int | None  # row from which to continue; None if each row was examined
    looked_at: int  # number of rows examined


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
        fits = matches(subject, first, stop, wanted)
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
        if matches(subject, row, row + 1, wanted)[0] and has_text(subject, row, wanted.text)[1]:
            return Match(row, row, looked)
        if ROWS <= looked < len(rows):
            return Match(None, rows[looked], looked)
    return Match(None, None, len(rows))
