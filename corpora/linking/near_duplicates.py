"""Reading of the clusters of a neighbours shard, with their graphs and near-duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from corpora.linking.graph import Graph
from corpora.linking.options import Linking
from corpora.storage.ragged import Ragged

NEAR_DUPLICATES = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("near_duplicate", pa.string(), nullable=False),
        pa.field("similarity", pa.float32()),
        pa.field("jaccard", pa.float32()),
    ]
)
_BLOCK = 1 << 16  # documents whose edges are compared in one block


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


def edge_graph(cluster: Cluster, linking: Linking) -> Graph:
    """Make the graph of a cluster's documents; pairs above the limits of ``linking`` are near-duplicates."""
    similarities = _flat(cluster.rows.column("similarities")).astype(np.float32)  # (edges,)
    jaccards = _flat(cluster.rows.column("jaccards"))
    norms = cluster.rows.column("norm").to_numpy()
    near = np.zeros(len(similarities), bool)
    offsets = cluster.neighbours.offsets
    for first in range(0, len(norms), _BLOCK):
        last = min(first + _BLOCK, len(norms))
        edges = slice(offsets[first], offsets[last])
        if linking.max_jaccard is not None:
            near[edges] |= jaccards[edges].astype(np.float32) > linking.max_jaccard
        if linking.max_cosine is not None:
            own = np.repeat(norms[first:last], np.diff(offsets[first : last + 1]))
            scale = own * norms[cluster.neighbours.values[edges]]
            near[edges] |= similarities[edges] > np.float32(linking.max_cosine) * scale
    return Graph(cluster.neighbours, similarities, near)


def near_duplicates(cluster: Cluster, graph: Graph, pairs: np.ndarray) -> pa.RecordBatch:
    """Turn ``(m, 2)`` pairs of documents into rows of ``NEAR_DUPLICATES``, with their similarities.

    A similarity is null if neither document lists the other: both are near-duplicates of a third.
    """
    count = len(cluster.rows)
    edges = np.flatnonzero(graph.near_duplicates)
    own = np.searchsorted(graph.neighbours.offsets, edges, side="right") - 1
    names = own * count + graph.neighbours.values[edges]  # an edge as one number
    order = np.argsort(names, kind="stable")
    edges, names = edges[order], names[order]
    ahead, back = pairs[:, 0] * count + pairs[:, 1], pairs[:, 1] * count + pairs[:, 0]
    values = []
    for column in (graph.similarities, _flat(cluster.rows.column("jaccards"))):
        found = np.full((2, len(pairs)), np.nan, np.float32)
        for row, wanted in zip(found, (ahead, back), strict=True):
            place = np.minimum(np.searchsorted(names, wanted), max(len(names) - 1, 0))
            exists = names[place] == wanted if len(names) else np.zeros(len(wanted), bool)
            row[exists] = column[edges[place[exists]]]
        either = np.where(np.isnan(found[0]), found[1], found[0])
        values.append(pa.array(either, mask=np.isnan(either)))
    ids = cluster.rows.column("document_id").combine_chunks()
    return pa.record_batch([*(ids.take(pa.array(pairs[:, side])) for side in (0, 1)), *values], schema=NEAR_DUPLICATES)
