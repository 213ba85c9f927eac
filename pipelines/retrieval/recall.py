"""Recall of the neighbour search, measured on a sample of documents.

The manifest's totals count the true nearest neighbours of the sampled documents among all documents, ten each
(``sampled_neighbours``), those in the document's own cluster (``sampled_in_cluster``), and those of these that the
search found (``sampled_found``). The first loss is due to cluster borders, the second to the search, whose recall is
``sampled_found / sampled_in_cluster``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from corpora.retrieval.best_rows import Neighbours
from corpora.retrieval.knn import nearest
from corpora.retrieval.vector_rows import VectorRows
from corpora.storage.manifest import Receipt
from pipelines.engine.handed_on import read_array, write_array
from pipelines.engine.job import Report, Task
from pipelines.retrieval.cluster_shard import ClusterShard

SAMPLE_DEPTH = 10  # true neighbours per sampled document, or fewer if the search has fewer


# a sampled document: row in the shard, cluster, vector, found neighbours (-1: none)
def _queries(dimension: int, k: int) -> np.dtype:
    return np.dtype([("row", "<i4"), ("cluster", "<i8"), ("vector", "<f2", (dimension,)), ("neighbours", "<i4", (k,))])


def no_queries(dimension: int, k: int) -> np.ndarray:
    """Return an empty array of queries."""
    return np.empty(0, _queries(dimension, k))


def sampled_queries(shard: ClusterShard, result: Neighbours, first: int, rows: np.ndarray, k: int) -> np.ndarray:
    """Describe the sampled ``(q,)`` rows of a cluster and their neighbours, ``(q,)``, for the search in all clusters.

    ``first`` is the cluster's first row in the shard; ``result`` has the neighbours of all its documents.
    """
    queries = np.empty(len(rows), _queries(shard.vectors.dimension, k))
    queries["row"] = first + rows
    queries["cluster"] = shard.cluster_ids[first + rows]
    queries["vector"] = shard.vectors.floats(first + rows)
    queries["neighbours"] = -1
    width = result.rows.shape[1]
    exists = np.arange(width) < result.counts[rows, None]
    queries["neighbours"][:, :width] = np.where(exists, first + result.rows[rows], -1)
    return queries


@dataclass(frozen=True)
class SampleShard:
    """Find the nearest documents in one shard for every sampled document."""

    queries: tuple[str, ...]
    dimension: int
    depth: int
    threads: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        shard = ClusterShard.read(task.payload["clusters"], self.dimension)
        sampled = [read_array(path) for path in self.queries]
        queries = np.concatenate(sampled)
        homes = np.repeat(np.arange(len(sampled)), [len(part) for part in sampled])
        excluded = np.where(homes == task.payload["index"], queries["row"], -1).astype(np.int32)
        with threadpool_limits(self.threads):
            nearest_rows = nearest(shard.vectors, VectorRows.from_array(queries["vector"]), self.depth, excluded)
        missing = np.arange(self.depth) >= nearest_rows.counts[:, None]
        exact = np.empty(nearest_rows.rows.shape, [("product", "<f4"), ("row", "<i4"), ("cluster", "<i8")])
        exact["product"] = np.where(missing, -np.inf, nearest_rows.products)
        exact["row"] = np.where(missing, -1, nearest_rows.rows)
        exact["cluster"] = shard.cluster_ids[exact["row"]] if len(shard) else -1
        write_array(task.payload["exact"], exact)
        return Receipt(task.name)


@dataclass(frozen=True)
class Recall:
    """Count the true neighbours of the sampled documents, in total, in their clusters and found."""

    queries: tuple[str, ...]
    exact: tuple[str, ...]
    depth: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        queries = np.concatenate([read_array(path) for path in self.queries])
        # (queries, shards * depth), by shard
        exact = np.concatenate([read_array(path) for path in self.exact], axis=1)
        order = np.argsort(-exact["product"], axis=1, kind="stable")[:, : self.depth]
        best = np.take_along_axis(exact, order, axis=1)
        real = best["row"] >= 0
        inside = real & (best["cluster"] == queries["cluster"][:, None])
        # (queries, depth, k) -> (queries, depth)
        listed = (best["row"][:, :, None] == queries["neighbours"][:, None, :]).any(axis=2)
        totals = {
            "sampled_documents": len(queries),
            "sampled_neighbours": int(real.sum()),
            "sampled_in_cluster": int(inside.sum()),
            "sampled_found": int((inside & listed).sum()),
        }
        return Receipt(task.name, totals=totals)
