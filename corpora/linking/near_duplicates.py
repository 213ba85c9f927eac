"""The rule that makes two documents of a cluster near-duplicates, and the table of the pairs that it kept apart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpora.linking.graph import Cluster, Graph
from corpora.linking.options import Linking

NEAR_DUPLICATES = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("near_duplicate", pa.string(), nullable=False),
        pa.field("similarity", pa.float32()),
        pa.field("jaccard", pa.float32()),
    ]
)
_BLOCK = 1 << 16  # documents whose edges are compared in one block


def edge_graph(cluster: Cluster, linking: Linking) -> Graph:
    """Make the graph of a cluster's documents."""
    return Graph(cluster.neighbours, cluster.similarities, near_duplicate_edges(cluster, linking))


def near_duplicate_edges(cluster: Cluster, linking: Linking) -> np.ndarray:
    """Decide which edges join near-duplicates: those above ``max_jaccard`` or ``max_cosine``; ``(edges,)`` bool."""
    norms = cluster.rows.column("norm").to_numpy()
    near = np.zeros(len(cluster.similarities), bool)
    offsets = cluster.neighbours.offsets
    for first in range(0, len(norms), _BLOCK):
        last = min(first + _BLOCK, len(norms))
        edges = slice(offsets[first], offsets[last])
        if linking.max_jaccard is not None:
            near[edges] |= cluster.jaccards[edges].astype(np.float32) > linking.max_jaccard
        if linking.max_cosine is not None:
            row_norms = np.repeat(norms[first:last], np.diff(offsets[first : last + 1]))
            scale = row_norms * norms[cluster.neighbours.values[edges]]
            near[edges] |= cluster.similarities[edges] > np.float32(linking.max_cosine) * scale
    return near


def near_duplicates(cluster: Cluster, graph: Graph, pairs: np.ndarray) -> pa.RecordBatch:
    """Turn ``(m, 2)`` pairs of documents into rows of ``NEAR_DUPLICATES``, with their similarities.

    A similarity is null if neither document lists the other: both are near-duplicates of a third.
    """
    count = len(cluster.rows)
    edges = np.flatnonzero(graph.near_duplicates)
    rows = np.searchsorted(graph.neighbours.offsets, edges, side="right") - 1
    names = rows * count + graph.neighbours.values[edges]  # an edge as one number
    order = np.argsort(names, kind="stable")
    edges, names = edges[order], names[order]
    ahead, back = pairs[:, 0] * count + pairs[:, 1], pairs[:, 1] * count + pairs[:, 0]
    values = []
    for column in (graph.similarities, cluster.jaccards):
        directions = np.full((2, len(pairs)), np.nan, np.float32)
        for row, wanted in zip(directions, (ahead, back), strict=True):
            place = np.minimum(np.searchsorted(names, wanted), max(len(names) - 1, 0))
            exists = names[place] == wanted if len(names) else np.zeros(len(wanted), bool)
            row[exists] = column[edges[place[exists]]]
        either = np.where(np.isnan(directions[0]), directions[1], directions[0])
        values.append(pa.array(either, mask=np.isnan(either)))
    ids = cluster.rows.column("document_id").combine_chunks()
    return pa.record_batch([*(ids.take(pa.array(pairs[:, side])) for side in (0, 1)), *values], schema=NEAR_DUPLICATES)
