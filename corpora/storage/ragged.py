"""Lists of unequal length as two flat arrays, the layout that Arrow and numba share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.storage.arrow_views import numbers


def read_only(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return read-only views of arrays, so that memory maps and numpy's own arrays share one compiled kernel."""
    views = tuple(array.view() for array in arrays)
    for view in views:
        view.flags.writeable = False
    return views


@dataclass(frozen=True, slots=True)
class Ragged:
    """A batch of lists; row i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: ``(total,)`` any dtype.
        offsets: ``(rows + 1,)`` int64, ascending; ``offsets[0]`` need not be 0 (a zero-copy slice).
    """

    values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        row = row + len(self) if row < 0 else row
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows, {int(self.offsets[-1] - self.offsets[0])} values of {self.values.dtype})"

    @property
    def lengths(self) -> np.ndarray:
        """Length of each row, ``(rows,)`` int64."""
        return self.offsets[1:] - self.offsets[:-1]

    @classmethod
    def from_rows(cls, rows: Sequence[np.ndarray | Sequence[float]], dtype: np.typing.DTypeLike) -> Ragged:
        """Copy ``rows`` one after the other."""
        return cls.from_lengths(
            np.concatenate([np.asarray(row, dtype) for row in rows]) if len(rows) else np.empty(0, dtype),
            np.fromiter((len(row) for row in rows), np.int64, len(rows)),
        )

    @classmethod
    def from_lengths(cls, values: np.ndarray, lengths: np.ndarray | Iterable[int]) -> Ragged:
        """Cut flat ``values`` into rows of the given ``lengths``."""
        lengths = np.asarray(lengths, np.int64)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(values, offsets)

    @classmethod
    def from_arrow(cls, array: pa.Array) -> Ragged:
        """View a ``list`` or ``large_list`` array of numbers without nulls, without copying."""
        return cls(numbers(array.values), numbers(array.offsets).astype(np.int64, copy=False))

    def to_arrow(self, kind: pa.DataType) -> pa.Array:
        """Convert to an Arrow array of type ``kind`` (``list`` or ``large_list``), without copying the values."""
        compact = self.compact()
        values = pa.array(compact.values, kind.value_type)
        if pa.types.is_large_list(kind):
            return pa.LargeListArray.from_arrays(pa.array(compact.offsets), values, type=kind)
        return pa.ListArray.from_arrays(pa.array(compact.offsets.astype(np.int32)), values, type=kind)

    def compact(self) -> Ragged:
        """Return the same rows with ``offsets[0] == 0`` and no other values."""
        first, last = self.offsets[0], self.offsets[-1]
        if first == 0 and last == len(self.values):
            return self
        return Ragged(self.values[first:last], self.offsets - first)

    def take(self, rows: np.ndarray | Sequence[int]) -> Ragged:
        """Copy the given rows, in the given order."""
        rows = np.asarray(rows, np.int64)
        return self.cut(rows, np.zeros(len(rows), np.int64), self.lengths[rows])

    def cut(self, rows: np.ndarray, offsets: np.ndarray, sizes: np.ndarray) -> Ragged:
        """Copy a piece of each of the given rows: ``sizes[i]`` values from ``offsets[i]`` on; all ``(n,)``."""
        pieces = Ragged.from_lengths(self.values[:0], sizes)
        values = np.empty(pieces.offsets[-1], self.values.dtype)
        _copy_pieces(self.values, self.offsets[rows] + offsets, pieces.offsets, values)
        return Ragged(values, pieces.offsets)

    @classmethod
    def concatenate(cls, parts: Sequence[Ragged]) -> Ragged:
        """Concatenate the rows of all ``parts``, in order."""
        parts = [part.compact() for part in parts]
        return cls.from_lengths(
            np.concatenate([part.values for part in parts]), np.concatenate([part.lengths for part in parts])
        )


@compiled(small=True)
def _copy_pieces(values: np.ndarray, starts: np.ndarray, out_offsets: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(starts)):
        for j in range(out_offsets[i + 1] - out_offsets[i]):
            out[out_offsets[i] + j] = values[starts[i] + j]


def concatenate_columns(parts: Sequence[Any]) -> Any:
    """Concatenate columns of one kind: arrays, ``Ragged``, Arrow arrays, or None for an absent column."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, Ragged):
        return Ragged.concatenate(parts)
    return pa.concat_arrays(parts) if isinstance(first, pa.Array) else np.concatenate(parts)
