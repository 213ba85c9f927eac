"""Copying of rows from many blocks into one block: all columns in two compiled passes.

The rows of a random batch are in as many record batches. A slice for every row and column would cost more than the
copying, so each block keeps a table of the memory addresses of its columns, which the two passes use.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled, intrinsic
from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged

Block = TypeVar("Block")

_OFFSETS, _VALUES, _BYTES, _ROWS, _COUNT = range(5)
"""A column's place: address of its offsets (0: one item per row) and of its values, bytes of an item, rows, items."""

_ARROW = -1  # in place of the bytes of an item: an Arrow array, not copied by address


@dataclass(frozen=True, slots=True)
class Gatherable(Generic[Block]):
    """A block of rows with the memory addresses of its columns, valid while this object exists.

    The block is a dataclass of columns: arrays, ``Ragged``, Arrow arrays, or None for an absent column.
    """

    block: Block
    columns: tuple[Any, ...]  # in the order of its fields
    places: np.ndarray  # (columns, 5) int64: the place of each column, by ``_OFFSETS`` to ``_COUNT``

    @classmethod
    def of(cls, block: Block) -> Gatherable[Block]:
        columns = tuple(_contiguous(getattr(block, field.name)) for field in fields(block))  # type: ignore[arg-type]
        return cls(type(block)(*columns), columns, np.array([_place(column) for column in columns], np.int64))


def gather(blocks: Sequence[Gatherable[Block]], which: np.ndarray, rows: np.ndarray) -> Block:
    """Copy row ``rows[i]`` of block ``which[i]`` into row i of a new block; ``which`` and ``rows``: ``(n,)`` int64.

    There is at least one block, and all are of the same dataclass.
    """
    like, places = blocks[0].columns, np.array([each.places for each in blocks])  # (blocks, columns, 5)
    # sources: (columns, n), addresses; offsets: (columns, n + 1), items
    sources, offsets = np.empty((len(like), len(rows)), np.int64), np.empty((len(like), len(rows) + 1), np.int64)
    if not _locate(places, which, rows, sources, offsets):
        raise FarspanError(
            "a column's offsets point outside its values, or only some record batches have the column; "
            "`farspan verify` finds the damaged shard"
        )
    made: list[Any] = []
    targets = []  # addresses
    for number, (column, items) in enumerate(zip(like, offsets[:, -1].tolist(), strict=True)):
        if type(column) is Ragged:
            values = np.empty(items, column.values.dtype)
            made.append(Ragged(values, offsets[number]))
            targets.append(_address(values))
        elif type(column) is np.ndarray:
            values = np.empty((items, *column.shape[1:]), column.dtype)
            made.append(values)
            targets.append(_address(values))
        else:
            made.append(None if column is None else _slices([each.columns[number] for each in blocks], which, rows))
            targets.append(0)
    _copy(sources, offsets, places[0], np.array(targets))
    return type(blocks[0].block)(*made)


def _contiguous(column: Any) -> Any:
    if isinstance(column, Ragged):
        return Ragged(np.ascontiguousarray(column.values), np.ascontiguousarray(column.offsets, np.int64))
    return np.ascontiguousarray(column) if isinstance(column, np.ndarray) else column


def _place(column: Any) -> tuple[int, int, int, int, int]:
    if isinstance(column, Ragged):
        values = column.values
        return _address(column.offsets), _address(values), values.itemsize, len(column), len(values)
    if isinstance(column, np.ndarray):
        return 0, _address(column), column.itemsize * int(np.prod(column.shape[1:])), len(column), len(column)
    return (0, 0, 0, 0, 0) if column is None else (0, 0, _ARROW, len(column), 0)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _slices(columns: Sequence[pa.Array], which: np.ndarray, rows: np.ndarray) -> pa.Array:
    if not len(rows):
        return columns[0].slice(0, 0)
    pairs = zip(which.tolist(), rows.tolist(), strict=True)
    return pa.concat_arrays([columns[block].slice(row, 1) for block, row in pairs])


@intrinsic("corpora.storage.addresses")
def at(address: int) -> int:
    """Read the int64 at an address."""
    return ctypes.c_int64.from_address(int(address)).value


@intrinsic("corpora.storage.addresses")
def move(target: int, source: int, size: int) -> None:
    """Copy bytes from one address to another."""
    ctypes.memmove(int(target), int(source), int(size))


@compiled(small=True)
def _locate(
    places: np.ndarray,  # (blocks, columns, 5)
    which: np.ndarray,  # (n,)
    rows: np.ndarray,  # (n,)
    sources: np.ndarray,  # (columns, n), receives addresses
    offsets: np.ndarray,  # (columns, n + 1), receives the start of each row in the gathered values
) -> bool:
    for column in range(len(sources)):
        offsets[column, 0] = 0
        for i in range(len(rows)):
            starts, values, size, there, count = places[which[i], column]
            first, last = rows[i], rows[i] + 1
            if size != places[which[0], column, _BYTES]:
                return False
            if size == 0:  # absent
                first, last = 0, 0
            elif not 0 <= rows[i] < there:
                return False
            elif size == _ARROW:
                first, last = 0, 0
            elif starts != 0:
                first, last = at(starts + 8 * rows[i]), at(starts + 8 * rows[i] + 8)
            if not 0 <= first <= last <= count:
                return False
            sources[column, i] = values + first * size
            offsets[column, i + 1] = offsets[column, i] + last - first
    return True


@compiled(small=True)
def _copy(
    sources: np.ndarray,  # (columns, n)
    offsets: np.ndarray,  # (columns, n + 1)
    places: np.ndarray,  # (columns, 5)
    targets: np.ndarray,  # (columns,)
) -> None:
    for column in range(len(sources)):
        size = places[column, _BYTES]
        for i in range(sources.shape[1]):
            first, last = offsets[column, i], offsets[column, i + 1]
            if last > first:
                move(targets[column] + first * size, sources[column, i], (last - first) * size)
