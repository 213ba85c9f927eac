"""Filters of rows, and the record batches to which they are applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpora.errors import FarspanError
from corpora.storage.sharded_rows import ShardedRows


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Conditions on a row; all that are given must hold.

    Attributes:
        source: name of the source of one of its documents.
        id: part of a document's or pair's id, or the beginning of a sequence's.
        text: text that it contains, ignoring case.
        least, most: bounds of its number of tokens.
        least_hidden, most_hidden: bounds of the percentage of its tokens that mask set ``masks`` puts into the target.
        rows: row numbers; empty for all.
    """

    source: str = ""
    id: str = ""
    text: str = ""
    least: int | None = None
    most: int | None = None
    least_hidden: float | None = None
    most_hidden: float | None = None
    masks: int = 0
    rows: tuple[int, ...] = ()

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> Filter:
        """Read a filter from the parameters of an address; others are ignored."""
        values: dict[str, Any] = {}
        for name in (field.name for field in fields(cls)):
            text = parameters.get(name, "")
            text = text if name == "text" else text.strip()
            if not text:
                continue
            try:
                values[name] = _READERS.get(name, str)(text)
            except ValueError:
                raise FarspanError(f"filter {name}={text[:40]!r}: give {_NEEDED[name]}") from None
        return cls(**values)

    @property
    def reads(self) -> bool:
        """True if rows have to be read to apply it."""
        others = (self.source, self.id, self.text)
        return any(others) or any(
            value is not None for value in (self.least, self.most, self.least_hidden, self.most_hidden)
        )

    @property
    def hides(self) -> bool:
        """True if it bounds the percentage of hidden tokens."""
        return self.least_hidden is not None or self.most_hidden is not None


def whole_number(text: str) -> int:
    """Read a whole number."""
    value = int(text)
    if abs(value) > 1 << 40:
        raise ValueError
    return value


_READERS: Mapping[str, Callable[[str], Any]] = {
    "least": whole_number,
    "most": whole_number,
    "masks": whole_number,
    "least_hidden": float,
    "most_hidden": float,
    "rows": lambda text: tuple(sorted({whole_number(part) for part in text.split(",")})),
}
_NEEDED = {
    **dict.fromkeys(("least", "most"), "a number of tokens"),
    **dict.fromkeys(("least_hidden", "most_hidden"), "a percentage"),
    "masks": "the number of a mask set",
    "rows": "row numbers, as in 3,17,204",
}


def any_of_row(lists: pa.Array, matching: pa.Array) -> np.ndarray:
    """``(rows,)`` bool: rows of a list column with a matching value; ``matching`` has a bool per flattened value."""
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    hits = owners[matching.to_numpy(zero_copy_only=False)]
    return np.bincount(hits, minlength=len(lists)) > 0


def document_matches(lists: pa.Array, wanted: Filter) -> np.ndarray:
    """``(rows,)`` bool: rows with a document of the filter's source and a document whose id contains the filter's."""
    fits = np.ones(len(lists), bool)
    names = lists.flatten()
    if wanted.source:
        fits &= any_of_row(lists, pc.starts_with(names, wanted.source + ":"))
    if wanted.id:
        fits &= any_of_row(lists, pc.match_substring(names, wanted.id))
    return fits


def within(values: np.ndarray, least: float | None, most: float | None) -> np.ndarray:
    """``(n,)`` bool: values from ``least`` to ``most``, each None for no bound."""
    fits = np.ones(len(values), bool)
    if least is not None:
        fits &= values >= least
    if most is not None:
        fits &= values <= most
    return fits


def batch_bounds(rows: ShardedRows, row: int) -> tuple[int, int]:
    """First and last + 1 row of the record batch that holds ``row``."""
    shard, _, inside = (int(column[0]) for column in rows.locate(np.array([row])))
    first = row - inside
    return first, min(first + rows.manifest.rows_per_batch, int(rows.starts[shard + 1]))


def list_lengths(rows: ShardedRows, column: str, start: int, stop: int) -> np.ndarray:
    """``(n,)`` float64 lengths of the lists of a column, in rows ``start:stop`` of one record batch; reads offsets."""
    return np.diff(read_rows(rows, start, stop).column(column).offsets.to_numpy()).astype(np.float64)


def read_rows(rows: ShardedRows, start: int, stop: int) -> pa.RecordBatch:
    """Rows ``start:stop``, which lie in one record batch; a view."""
    shard, batch, inside = (int(column[0]) for column in rows.locate(np.array([start])))
    return rows.batch(shard, batch).slice(inside, stop - start)
