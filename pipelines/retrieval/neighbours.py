"""``farspan neighbours``: find the nearest neighbours of each document in its cluster.

Stage *search* takes one shard of clusters, cluster by cluster; *sample* and *recall* measure its recall on a sample of
documents. The manifest's totals count the true nearest neighbours of these among all documents, ten each
(``sampled_neighbours``), those in the document's own cluster (``sampled_in_cluster``), and those of these that the
search found (``sampled_found``). The first loss is due to cluster borders, the second to the search, whose recall is
``sampled_found / sampled_in_cluster``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from corpora.errors import FarspanError
from corpora.keyed import make_key, select_share
from corpora.options import record_options
from corpora.retrieval.best_rows import Neighbours
from corpora.retrieval.knn import list_count, memory_needed, nearest, search
from corpora.retrieval.vector_rows import VectorRows, norms, refuse_not_finite
from corpora.schemas.vectors import clusters_schema, neighbours_schema
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import ShardWriter, StoredShard, write_shard
from corpora.text.word_ngrams import jaccard
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.job import Job, Report, Stage, Task, make_sharded_stage, shard_paths, work_paths
from pipelines.retrieval.options import NeighbourSearch, SearchOptions
from pipelines.shuffle.intermediate import read_array, write_array

_SAMPLE = 256  # documents whose true neighbours are searched in all clusters
_DEPTH = 10  # true neighbours per sampled document, or fewer if the search has fewer
_BLOCK = 1024


def plan(options: NeighbourSearch) -> Job:
    """Check the options and declare the tasks."""
    output, clusters = absolute(options.output), Parent.read(options.clusters, "farspan.clusters")
    check_memory(options, clusters.manifest.totals["max_documents"], clusters.manifest.config["dimension"])
    return declare_derived_job(
        output,
        clusters,
        _stages(options, clusters, output),
        format="farspan.neighbours",
        config={"builder": "neighbours", "split": clusters.manifest.config["split"], **record_options(options)},
        seed=options.search.seed,
    )


def _stages(options: NeighbourSearch, clusters: Parent, output: str) -> list[Stage]:
    shards, manifest = clusters.shards, clusters.manifest
    dimension, rows = manifest.config["dimension"], [shard.rows for shard in shards]
    queries, exact = (work_paths(output, name, len(shards)) for name in ("queries", "exact"))
    depth, share = min(_DEPTH, options.search.k), _SAMPLE / max(manifest.totals["documents"], 1)
    search_work = partial(_search_shard, options, dimension, manifest.rows_per_batch, share)
    sample = partial(_sample_shard, queries, dimension, depth, options.threads)
    paths = shard_paths(output, len(shards))
    return [
        make_sharded_stage("search", search_work, "documents", rows, clusters=shards, shard=paths, queries=queries),
        make_sharded_stage("sample", sample, "documents", rows, clusters=shards, exact=exact),
        Stage("recall", [Task("recall", {}, 1)], partial(count_recall, queries, exact, depth), "tasks"),
    ]


def check_memory(options: SearchOptions, largest: int, dimension: int) -> None:
    """Check that a cluster of ``largest`` vectors can be searched."""
    needed = memory_needed(options.search, largest, dimension)
    if needed > options.memory * 2**30:
        raise FarspanError(
            f"--memory {_size(options.memory * 2**30)}: {options.search.k} neighbours of each document in a cluster "
            f"of {largest:,} take {_size(needed)} per worker; lower --k, give more --memory, or make "
            "smaller clusters: lower --max-documents, or give more --centroids"
        )


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _search_shard(
    options: NeighbourSearch, dimension: int, rows_per_batch: int, share: float, task: Task, report: Report
) -> Receipt:
    """Search the clusters of one shard, and write the queries of its sampled ``share`` of documents."""
    k = options.search.k
    shard = ClusterShard(task.payload["clusters"], dimension)
    totals = {"documents": len(shard), "tokens": int(shard.tokens.sum()), "neighbours": 0}
    totals |= {"clusters": len(shard.clusters), "documents_searched_exactly": 0}
    key = make_key(options.search.seed, "recall")
    sampled = select_share(key, shard.column("document_id").to_pylist(), share)
    queries = []
    with (
        threadpool_limits(options.threads),
        write_shard(task.payload["shard"], neighbours_schema(), rows_per_batch, options.compression) as (writer, info),
    ):
        for first, last in shard.clusters:
            lengths = shard.norms(first, last)
            result = search(shard.vectors[first:last], options.search, _part_of(report, first, last))
            _write(writer, shard, result, first, last, lengths)
            totals["neighbours"] += int(result.counts.sum())
            totals["documents_searched_exactly"] += (last - first) * (list_count(options.search, last - first) == 1)
            rows = np.flatnonzero(sampled[first:last])
            queries.append(_describe_queries(shard, result, first, rows, k))
            report(last)
    write_array(task.payload["queries"], np.concatenate([no_queries(dimension, k), *queries]))
    return Receipt(task.name, tuple(info), totals)


def _write(
    writer: ShardWriter, shard: ClusterShard, result: Neighbours, first: int, last: int, lengths: np.ndarray
) -> None:
    schema = neighbours_schema()
    sketches = shard.sketches(first, last)
    for start in range(0, last - first, _BLOCK):
        end = min(start + _BLOCK, last - first)
        rows, products = result.ragged(start, end)
        owners = np.repeat(np.arange(start, end), rows.lengths)
        shares = jaccard(sketches, owners, rows.values)
        columns = [
            *(shard.column(name).slice(first + start, end - start) for name in schema.names[:4]),
            pa.array(lengths[start:end]),
            Ragged(rows.values + np.int32(first), rows.offsets).to_arrow(pa.list_(pa.int32())),
            Ragged(products.values.astype(np.float16), rows.offsets).to_arrow(pa.list_(pa.float16())),
            Ragged(shares.astype(np.float16), rows.offsets).to_arrow(pa.list_(pa.float16())),
        ]
        writer.write(pa.record_batch(columns, schema=schema))


def _part_of(report: Report, first: int, last: int) -> Callable[[float], None]:
    """Return a function that reports the searched share of the cluster ``first:last`` as a number of documents."""
    return lambda share: report(first + int(share * (last - first)))


# a sampled document: row in the shard, cluster, vector, found neighbours (-1: none)
def _query_type(dimension: int, k: int) -> np.dtype:
    return np.dtype([("row", "<i4"), ("cluster", "<i8"), ("vector", "<f2", (dimension,)), ("neighbours", "<i4", (k,))])


def no_queries(dimension: int, k: int) -> np.ndarray:
    """Return an empty array of queries."""
    return np.empty(0, _query_type(dimension, k))


def _describe_queries(shard: ClusterShard, result: Neighbours, first: int, rows: np.ndarray, k: int) -> np.ndarray:
    """Describe the sampled ``(q,)`` rows of a cluster and their neighbours, ``(q,)``, for the search in all clusters.

    ``first`` is the cluster's first row in the shard; ``result`` has the neighbours of all its documents.
    """
    queries = np.empty(len(rows), _query_type(shard.vectors.dimension, k))
    queries["row"] = first + rows
    queries["cluster"] = shard.cluster_ids[first + rows]
    queries["vector"] = shard.vectors.floats(first + rows)
    queries["neighbours"] = -1
    width = result.rows.shape[1]
    exists = np.arange(width) < result.counts[rows, None]
    queries["neighbours"][:, :width] = np.where(exists, first + result.rows[rows], -1)
    return queries


def _sample_shard(
    queries: Sequence[str], dimension: int, depth: int, threads: int, task: Task, report: Report
) -> Receipt:
    """Find the nearest documents in one shard for every sampled document."""
    shard = ClusterShard(task.payload["clusters"], dimension)
    sampled = [read_array(path) for path in queries]
    asked = np.concatenate(sampled)
    homes = np.repeat(np.arange(len(sampled)), [len(part) for part in sampled])
    excluded = np.where(homes == task.payload["index"], asked["row"], -1).astype(np.int32)
    with threadpool_limits(threads):
        nearest_rows = nearest(shard.vectors, VectorRows.from_array(asked["vector"]), depth, excluded)
    missing = np.arange(depth) >= nearest_rows.counts[:, None]
    exact = np.empty(nearest_rows.rows.shape, [("product", "<f4"), ("row", "<i4"), ("cluster", "<i8")])
    exact["product"] = np.where(missing, -np.inf, nearest_rows.products)
    exact["row"] = np.where(missing, -1, nearest_rows.rows)
    exact["cluster"] = shard.cluster_ids[exact["row"]] if len(shard) else -1
    write_array(task.payload["exact"], exact)
    return Receipt(task.name)


def count_recall(queries: Sequence[str], exact: Sequence[str], depth: int, task: Task, report: Report) -> Receipt:
    """Count the true neighbours of the sampled documents, in total, in their clusters and found."""
    sampled = np.concatenate([read_array(path) for path in queries])
    # (queries, shards * depth), by shard
    nearest_rows = np.concatenate([read_array(path) for path in exact], axis=1)
    order = np.argsort(-nearest_rows["product"], axis=1, kind="stable")[:, :depth]
    best = np.take_along_axis(nearest_rows, order, axis=1)
    real = best["row"] >= 0
    inside = real & (best["cluster"] == sampled["cluster"][:, None])
    # (queries, depth, k) -> (queries, depth)
    listed = (best["row"][:, :, None] == sampled["neighbours"][:, None, :]).any(axis=2)
    totals = {
        "sampled_documents": len(sampled),
        "sampled_neighbours": int(real.sum()),
        "sampled_in_cluster": int(inside.sum()),
        "sampled_found": int((inside & listed).sum()),
    }
    return Receipt(task.name, totals=totals)


_LARGEST = float(np.finfo(np.float16).max)


class ClusterShard:
    """A shard of clusters with n vectors: these memory-mapped, small columns copied."""

    def __init__(self, shard: StoredShard, dimension: int) -> None:
        whole, reader = shard.map()
        self.path, self._batches = shard.path, [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in self._batches:
            if batch.column("vector").type.list_size != dimension:
                raise FarspanError(
                    f"{self.path}: vectors of {batch.column('vector').type.list_size} numbers where the manifest says "
                    f"{dimension}; the shard belongs to another artefact: copy the right one"
                )
        self.vectors = VectorRows.from_batches(self._batches, dimension, whole)
        self._columns: dict[str, pa.Array] = {}
        self.tokens = self.column("document_tokens").to_numpy()  # (n,) int32
        self.cluster_ids = self.column("cluster_id").to_numpy()  # (n,) int64
        edges = np.flatnonzero(np.diff(self.cluster_ids, prepend=-1, append=-1)).tolist()
        self.clusters = list(itertools.pairwise(edges))  # first and last + 1 row of each cluster

    def __len__(self) -> int:
        return len(self.vectors)

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            kind = clusters_schema(self.vectors.dimension).field(name).type
            self._columns[name] = pa.concat_arrays(
                [batch.column(name) for batch in self._batches] or [pa.nulls(0, kind)]
            )
        return self._columns[name]

    def sketches(self, first: int, last: int) -> Ragged:
        """Shingles of the rows ``first:last``, a copy."""
        parts, start = [Ragged.from_rows([], np.uint32)], 0
        for batch in self._batches:
            inside = batch.slice(max(first - start, 0), max(last - start, 0) - max(first - start, 0))
            if start < last and len(inside):
                parts.append(Ragged.from_arrow(inside.column("shingles")))
            start += len(batch)
        return Ragged.concatenate(parts)

    def norms(self, first: int, last: int) -> np.ndarray:
        """Lengths of the vectors in rows ``first:last``; ``(last - first,)`` float32."""
        lengths = norms(self.vectors[first:last])
        refuse_not_finite(np.isfinite(lengths), self.column("document_id").slice(first), self.path)
        bad = np.flatnonzero(lengths * lengths > _LARGEST)
        if len(bad):
            document = self.column("document_id")[first + int(bad[0])].as_py()
            raise FarspanError(
                f"{self.path}: the vector of document {document!r} has length {lengths[bad[0]]:g}, and similarities "
                f"are stored as float16, up to {_LARGEST:g}; embed the documents again, with vectors of length 1"
            )
        return lengths
