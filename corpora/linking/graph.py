"""The clusters of a shard of neighbours, and the graph of one, from which sequences are built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corpora.compiled import compiled
from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged, read_only


@dataclass(frozen=True)
class Graph:
    """Neighbours of the n documents of one cluster."""

    neighbours: Ragged  # n rows of int32, document numbers, best first, none twice in a row
    similarities: np.ndarray  # (edges,) float32, those of ``neighbours.values``
    near_duplicates: np.ndarray  # (edges,) bool: True for edges whose two documents are near-duplicates

    def __post_init__(self) -> None:
        values, similarities, near_duplicates = read_only(
            self.neighbours.values, self.similarities, self.near_duplicates
        )
        object.__setattr__(self, "neighbours", Ragged(values, self.neighbours.offsets))
        object.__setattr__(self, "similarities", similarities)
        object.__setattr__(self, "near_duplicates", near_duplicates)

    def check(self) -> None:
        """Check that the columns fit each other."""
        n, edges = len(self.neighbours), len(self.neighbours.values)
        if len(self.similarities) != edges or len(self.near_duplicates) != edges:
            raise FarspanError(
                f"{edges} neighbours have {len(self.similarities)} similarities "
                f"and {len(self.near_duplicates)} marks of near-duplicates"
            )
        row = _find_damaged_row(self.neighbours.values, self.neighbours.offsets, self.similarities)
        if row >= 0:
            raise FarspanError(
                f"document {row} of {n} has the neighbours {self.neighbours[row][:5]}..., which are not documents of "
                "its cluster, best first; make the neighbours again"
            )

    def near_duplicate_pairs(self) -> np.ndarray:
        """Return the distinct pairs of near-duplicates, ``(pairs, 2)`` int64, the lower number first, ascending."""
        offsets, n = self.neighbours.offsets, len(self.neighbours)
        edges = np.flatnonzero(self.near_duplicates[offsets[0] : offsets[-1]]) + offsets[0]
        rows = np.searchsorted(offsets, edges, side="right") - 1
        others = self.neighbours.values[edges].astype(np.int64)
        low, high = np.minimum(rows, others), np.maximum(rows, others)
        return np.stack(np.divmod(np.unique((low * n + high)[low < high]), max(n, 1)), axis=1)

    def families(self) -> np.ndarray:
        """Return the family of each document, ``(n,)`` int64: its connected component of near-duplicates.

        If a text has more copies than a list has places, few copies list each other, but all are in one component.
        """
        return _families(self.neighbours.values, self.neighbours.offsets, self.near_duplicates)


@compiled
def _families(values: np.ndarray, offsets: np.ndarray, near_duplicates: np.ndarray) -> np.ndarray:
    """Find the connected components, each named by one of its documents."""
    families = np.arange(len(offsets) - 1)
    for row in range(len(families)):
        for edge in range(offsets[row], offsets[row + 1]):
            if near_duplicates[edge]:
                one, other = _family(families, np.int64(row)), _family(families, np.int64(values[edge]))
                families[max(one, other)] = min(one, other)
    for row in range(len(families)):
        families[row] = _family(families, np.int64(row))
    return families


@compiled
def _family(families: np.ndarray, document: np.int64) -> np.int64:
    """Find the root of a document's family, with path halving."""
    while families[document] != document:
        families[document] = families[families[document]]
        document = families[document]
    return document


@compiled
def _find_damaged_row(values: np.ndarray, offsets: np.ndarray, similarities: np.ndarray) -> int:
    """Find the first row with an invalid neighbour, or similarities that ascend or are nan; -1 if there is none."""
    n = len(offsets) - 1
    for row in range(n):
        before = np.float32(np.inf)
        for edge in range(offsets[row], offsets[row + 1]):
            if not (0 <= values[edge] < n and similarities[edge] <= before):
                return row
            before = similarities[edge]
    return -1


@dataclass(frozen=True)
class Cluster:
    """The n documents of one cluster."""

    number: int  # its ``cluster_id``
    rows: pa.Table  # n rows of ``farspan.neighbours``
    neighbours: Ragged  # n rows of int32, numbers of documents inside this cluster, best first

    @classmethod
    def of(cls, batches: Sequence[pa.RecordBatch], first: int) -> Cluster:
        """Join the rows of a cluster; ``first`` is the number of the first one in its shard."""
        rows = pa.Table.from_batches(batches)
        lengths = np.concatenate([np.diff(batch.column("neighbours").offsets) for batch in batches])
        neighbours = _flat(rows.column("neighbours")) - np.int32(first)
        return cls(rows.column("cluster_id")[0].as_py(), rows, Ragged.from_lengths(neighbours, lengths))

    @cached_property
    def similarities(self) -> np.ndarray:
        """Inner products with the neighbours, ``(edges,)`` float32."""
        return _flat(self.rows.column("similarities")).astype(np.float32)

    @cached_property
    def jaccards(self) -> np.ndarray:
        """Estimated Jaccard similarities of word 5-grams with the neighbours, ``(edges,)`` float16."""
        return _flat(self.rows.column("jaccards"))


def clusters_of_shard(batches: Iterable[pa.RecordBatch]) -> Iterator[Cluster]:
    """Yield the clusters of one shard of neighbours; only one is in memory at a time."""
    waiting: list[pa.RecordBatch] = []
    first = 0  # row in the shard of the cluster's first document
    for batch in batches:
        numbers = batch.column("cluster_id").to_numpy()
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(batch)]):
            piece = batch.slice(start, stop - start)
            if waiting and waiting[0].column("cluster_id")[0] != piece.column("cluster_id")[0]:
                yield Cluster.of(waiting, first)
                first += sum(len(part) for part in waiting)
                waiting = []
            waiting.append(piece)
    if waiting:
        yield Cluster.of(waiting, first)


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks])
