"""``farspan neighbours``: find the nearest neighbours of each document in its cluster.

Stage *search* takes one shard of clusters, cluster by cluster; *sample* and *recall* measure the share of true
neighbours that it found (``pipelines.retrieval.recall``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from corpora.errors import FarspanError
from corpora.keyed import drawn, make_key
from corpora.options import record_options
from corpora.retrieval.best_rows import Neighbours
from corpora.retrieval.knn import list_count, memory_needed, search
from corpora.retrieval.options import Search
from corpora.schemas.vectors import neighbours_schema
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import ShardWriter, write_shard
from corpora.text.word_ngrams import jaccard
from pipelines.engine.artefacts import absolute
from pipelines.engine.derived import Parent, derived_job
from pipelines.engine.handed_on import write_array
from pipelines.engine.job import Job, Report, Stage, Task, sharded_stage
from pipelines.engine.paths import shard_paths, work_paths
from pipelines.retrieval.cluster_shard import ClusterShard
from pipelines.retrieval.options import NeighbourSearch, SearchOptions
from pipelines.retrieval.recall import SAMPLE_DEPTH, Recall, SampleShard, no_queries, sampled_queries

_SAMPLE = 256  # documents whose true neighbours are searched in all clusters
_BLOCK = 1024


def plan(options: NeighbourSearch) -> Job:
    """Check the options and declare the tasks."""
    output, clusters = absolute(options.output), Parent.read(options.clusters, "farspan.clusters")
    check_memory(options, clusters.manifest.totals["max_documents"], clusters.manifest.config["dimension"])
    return derived_job(
        output,
        clusters,
        _stages(options, clusters, output),
        format="farspan.neighbours",
        config={
            "builder": "neighbours",
            "split": clusters.manifest.config["split"],
            **record_options(options),
        },
        seed=options.search.seed,
        rows_per_batch=clusters.manifest.rows_per_batch,
        work_bytes=clusters.bytes,
    )


def _stages(options: NeighbourSearch, clusters: Parent, output: str) -> list[Stage]:
    sources, dimension = clusters.shards, clusters.manifest.config["dimension"]
    queries, exact = (work_paths(output, name, len(sources)) for name in ("queries", "exact"))
    depth = min(SAMPLE_DEPTH, options.search.k)
    search_shard = SearchShard(
        search=options.search,
        threads=options.threads,
        compression=options.compression,
        rows_per_batch=clusters.manifest.rows_per_batch,
        dimension=dimension,
        key=make_key(options.search.seed, "recall"),
        share=_SAMPLE / clusters.manifest.totals["documents"],
    )
    to_search = [
        ({"clusters": source, "shard": path, "queries": sampled}, source.rows)
        for source, path, sampled in zip(sources, shard_paths(output, len(sources)), queries, strict=True)
    ]
    to_sample = [
        ({"index": index, "clusters": source, "exact": exact[index]}, source.rows)
        for index, source in enumerate(sources)
    ]
    return [
        sharded_stage("search", to_search, search_shard, "documents"),
        sharded_stage("sample", to_sample, SampleShard(queries, dimension, depth, options.threads), "documents"),
        Stage("recall", [Task("recall", {}, 1)], Recall(queries, exact, depth), "tasks"),
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


@dataclass(frozen=True)
class SearchShard:
    """Search the clusters of one shard, and write the queries of its sampled documents.

    Attributes:
        search: number of neighbours, method and seed of the search.
        dimension: number of components of a vector.
        key, share: key of the sample's draw, and share of the documents to draw.
    """

    search: Search
    threads: int
    compression: str | None
    rows_per_batch: int
    dimension: int
    key: bytes
    share: float

    def __call__(self, task: Task, report: Report) -> Receipt:
        path, k = task.payload["shard"], self.search.k
        shard = ClusterShard.read(task.payload["clusters"], self.dimension)
        totals = {"documents": len(shard), "tokens": int(shard.tokens.sum()), "neighbours": 0}
        totals |= {"clusters": len(shard.clusters), "documents_searched_exactly": 0}
        sampled = drawn(self.key, shard.column("document_id").to_pylist(), self.share)
        queries = []
        with (
            threadpool_limits(self.threads),
            write_shard(path, neighbours_schema(), self.rows_per_batch, self.compression) as (
                writer,
                info,
            ),
        ):
            for first, last in shard.clusters:
                lengths = shard.norms(first, last)
                result = search(shard.vectors[first:last], self.search, _part_of(report, first, last))
                self._write(writer, shard, result, first, last, lengths)
                totals["neighbours"] += int(result.counts.sum())
                totals["documents_searched_exactly"] += (last - first) * (list_count(self.search, last - first) == 1)
                rows = np.flatnonzero(sampled[first:last])
                queries.append(sampled_queries(shard, result, first, rows, k))
                report(last)
        write_array(task.payload["queries"], np.concatenate([no_queries(self.dimension, k), *queries]))
        return Receipt(task.name, tuple(info), totals)

    def _write(
        self, writer: ShardWriter, shard: ClusterShard, result: Neighbours, first: int, last: int, lengths: np.ndarray
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
