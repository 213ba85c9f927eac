"""Views of the float16 vectors in a mapped shard of any size, and inner products that are equal on every processor.

A product of two float16 numbers is a multiple of 2**-48 that float64 represents exactly. If the product of the lengths
of two vectors is below 32, so is every partial sum in any order, and the result is exact. Longer vectors are summed
from left to right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.schemas.vectors import vector_rows

# float32 value of each float16, indexed by its bits: exact, and twice as fast as numpy's conversion
_FLOATS = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class VectorRows:
    """n vectors of float16; row i is ``bits[starts[i] : starts[i] + dimension]``."""

    bits: np.ndarray  # (words,) uint16, a whole array in memory or a whole mapped file, which may hold other columns
    starts: np.ndarray  # (n,) int64
    dimension: int  # numbers per vector, d

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice | np.ndarray) -> VectorRows:
        """Return a view of some rows."""
        return VectorRows(self.bits, self.starts[rows], self.dimension)

    def floats(self, rows: np.ndarray) -> np.ndarray:
        """Copy the given rows, ``(len(rows), d)`` float32."""
        out = np.empty((len(rows), self.dimension), np.float32)
        self.gather(rows, out)
        return out

    def gather(self, rows: np.ndarray, out: np.ndarray) -> None:
        """Fill ``out``, ``(len(rows), d)`` float32, with the given rows."""
        _gather(self.bits, self.starts, np.asarray(rows), _FLOATS, out)

    @classmethod
    def from_array(cls, vectors: np.ndarray) -> VectorRows:
        """Return a view of ``(n, d)`` float16."""
        count, dimension = vectors.shape
        bits = np.ascontiguousarray(vectors, np.float16).reshape(-1).view(np.uint16)
        return cls(bits, np.arange(count, dtype=np.int64) * dimension, dimension)

    @classmethod
    def from_batches(cls, batches: Sequence[pa.RecordBatch], dimension: int, whole: pa.Buffer | None) -> VectorRows:
        """Return the ``vector`` column of all ``batches``.

        ``whole``: the mapped shard that holds the batches, of which the rows become views; None to copy them.
        Decompressed batches are copied in any case.
        """
        blocks = [vector_rows(batch.column("vector")) for batch in batches if len(batch)]
        if not blocks:
            return cls.from_array(np.empty((0, dimension), np.float16))
        if whole is None or not all(_inside(block, whole) for block in blocks):
            return cls.from_array(np.concatenate(blocks))
        starts = [
            (block.ctypes.data - whole.address) // 2 + np.arange(len(block), dtype=np.int64) * dimension
            for block in blocks
        ]
        return cls(np.frombuffer(whole, np.uint16, whole.size // 2), np.concatenate(starts), dimension)


def norms(vectors: VectorRows) -> np.ndarray:
    """Return Euclidean lengths, ``(n,)`` float32, equal on every processor; not finite where a vector is not."""
    squares = np.empty(len(vectors), np.float64)
    for first in range(0, len(vectors), _BLOCK):
        block = vectors.floats(np.arange(first, min(first + _BLOCK, len(vectors))))
        squared_lengths(block, squares[first : first + len(block)])
    return np.sqrt(squares).astype(np.float32)


def require_finite(batch: pa.RecordBatch, dimension: int, shard: str) -> np.ndarray:
    """Return the ``vector`` column of a batch as ``(n, d)`` float16, after checking it."""
    if batch.column("vector").type.list_size != dimension:
        raise FarspanError(
            f"{shard}: vectors of {batch.column('vector').type.list_size} numbers where the manifest says {dimension}; "
            "the shard belongs to another artefact: copy the right one, or embed the documents again"
        )
    vectors = vector_rows(batch.column("vector"))
    refuse_not_finite(np.isfinite(vectors).all(axis=1), batch.column("document_id"), shard)
    return vectors


def refuse_not_finite(finite: np.ndarray, document_ids: pa.Array, shard: str) -> None:
    """Check that vectors are finite; ``finite``: ``(n,)`` bool, True for those without NaN and infinity."""
    bad = np.flatnonzero(~finite)
    if len(bad):
        raise FarspanError(
            f"{shard}: the vector of document {document_ids[int(bad[0])].as_py()!r} holds NaN or infinity "
            f"({len(bad):,} of {len(finite):,} vectors here); embed the documents again, with an encoder that gives "
            "numbers for every text"
        )


def _inside(block: np.ndarray, whole: pa.Buffer) -> bool:
    first = block.ctypes.data
    return whole.address <= first and first + block.nbytes <= whole.address + whole.size


@compiled
def _gather(bits: np.ndarray, starts: np.ndarray, rows: np.ndarray, floats: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(rows)):
        start = starts[rows[i]]
        for j in range(out.shape[1]):
            out[i, j] = floats[bits[start + j]]


EXACT_BELOW = 31.0
"""Limit of the product of two vectors' lengths, slightly below 32 because lengths are rounded."""

_UNIT = 2.0**-24  # unit roundoff of float32


def error_bound(dimension: int) -> float:
    """Bound the error of a float32 sum of ``dimension`` products, relative to the product of the vectors' lengths.

    It holds for sums in any order, with or without fused multiplication. Source: Higham 2002, "Accuracy and stability
    of numerical algorithms", section 3.1; two more roundings are allowed for lengths and comparisons.
    """
    roundings = (dimension + 2) * _UNIT
    return roundings / (1 - roundings)


@compiled
def dot_in_order(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the inner product of two float32 vectors, summed in float64 from left to right.

    Every product is exact in float64, so a fused multiplication gives the same.
    """
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled(fastmath={"reassoc"})
def dot_exactly(a: np.ndarray, b: np.ndarray) -> float:
    """Compute the inner product of two vectors of float16 numbers whose lengths multiply to less than ``EXACT_BELOW``.

    The vectors are given as float32. Nothing is rounded, so the compiler may vectorise the sum.
    """
    total = 0.0
    for i in range(len(a)):
        total += np.float64(a[i]) * np.float64(b[i])
    return total


@compiled
def squared_lengths(vectors: np.ndarray, out: np.ndarray) -> None:
    """Write the squared lengths of ``(n, d)`` float32 vectors to ``out``, ``(n,)`` float64."""
    for i in range(len(vectors)):
        out[i] = dot_in_order(vectors[i], vectors[i])
