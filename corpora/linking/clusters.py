"""The clusters of a shard of neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Cluster:
    """The n documents of one cluster.

    Attributes:
        number: its ``cluster_id``.
        rows: n rows of ``farspan.neighbours``.
        neighbours: n rows of int32, numbers of documents inside this cluster, best first.
    """

    number: int
    rows: pa.Table
    neighbours: Ragged

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
                yield _cluster(waiting, first)
                first += sum(len(part) for part in waiting)
                waiting = []
            waiting.append(piece)
    if waiting:
        yield _cluster(waiting, first)


def _cluster(batches: list[pa.RecordBatch], first: int) -> Cluster:
    rows = pa.Table.from_batches(batches)
    lengths = np.concatenate([np.diff(batch.column("neighbours").offsets) for batch in batches])
    neighbours = _flat(rows.column("neighbours")) - np.int32(first)
    return Cluster(rows.column("cluster_id")[0].as_py(), rows, Ragged.from_lengths(neighbours, lengths))


def _flat(column: pa.ChunkedArray) -> np.ndarray:
    return np.concatenate([chunk.flatten().to_numpy() for chunk in column.chunks])
