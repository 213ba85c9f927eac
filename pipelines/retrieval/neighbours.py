"""``farspan neighbours``: the nearest others of each document in its cluster.

Stage *search* takes one shard of clusters, cluster by cluster; *sample* and *recall* say how many of the nearest it
missed (``pipelines.retrieval.recall``).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from corpora.errors import FarspanError
from corpora.keyed import drawn, make_key
from corpora.retrieval.best_rows import Neighbours
from corpora.retrieval.knn import list_count, memory_needed, search
from corpora.retrieval.options import Search
from corpora.schemas.vectors import neighbours_schema
from corpora.storage.manifest import Manifest, Receipt, read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shards import ShardWriter, write_shard
from corpora.storage.stored_shards import stored_shards
from corpora.text.word_ngrams import jaccard
from pipelines.engine.artefacts import absolute, inherit_tokenizer, parent_entry
from pipelines.engine.finalize import WORK
from pipelines.engine.handed_on import write_array
from pipelines.engine.job import Job, Report, Stage, Task
from pipelines.retrieval.cluster_shard import ClusterShard
from pipelines.retrieval.options import NeighbourSearch
from pipelines.retrieval.recall import SAMPLE_DEPTH, Recall, SampleShard, no_queries, sampled_queries

_SAMPLE = 256  # documents whose true neighbours are sought everywhere
_BLOCK = 1024


def plan(options: NeighbourSearch) -> Job:
    """Check the options and lay out the tasks.

    Raises:
        FarspanError: no finished clusters there, a number out of range, or more memory needed than allowed.
    """
    clusters, output = absolute(options.clusters), absolute(options.output)
    parent = read_manifest(clusters, "farspan.clusters")
    documents, dimension = parent.totals["documents"], parent.config["dimension"]
    _check_memory(options, parent)
    head = Manifest(
        format="farspan.neighbours",
        config={
            "builder": "neighbours",
            "split": parent.config["split"],
            **{name: value for name, value in asdict(options.search).items() if name != "seed"},
            "threads": options.threads,
            "compression": options.compression,
        },
        seed=options.search.seed,
        rows_per_batch=parent.rows_per_batch,
        tokenizer=parent.tokenizer,
        parent=parent_entry(output, clusters),
    )
    sources = stored_shards(clusters, parent)

    def work(name: str) -> tuple[str, ...]:
        return tuple(os.path.join(output, WORK, f"{name}-{index:05d}") for index in range(len(sources)))

    queries, exact = work("queries"), work("exact")
    depth = min(SAMPLE_DEPTH, options.search.k)
    draw = (make_key(options.search.seed, "recall"), _SAMPLE / documents)
    search_tasks = [
        Task(
            f"search-{index:05d}",
            {
                "clusters": sources[index],
                "shard": os.path.join(output, "shards", shard.name),
                "queries": queries[index],
            },
            shard.rows,
        )
        for index, shard in enumerate(parent.shards)
    ]
    sample_tasks = [
        Task(f"sample-{index:05d}", {"index": index, "clusters": sources[index], "exact": exact[index]}, shard.rows)
        for index, shard in enumerate(parent.shards)
    ]
    stages = [
        Stage("search", search_tasks, SearchShard(head, dimension, *draw), "documents"),
        Stage("sample", sample_tasks, SampleShard(queries, dimension, depth, options.threads), "documents"),
        Stage("recall", [Task("recall", {}, 1)], Recall(queries, exact, depth), "tasks"),
    ]
    size = sum(shard.bytes for shard in parent.shards)
    return Job(output, head, stages, partial(inherit_tokenizer, clusters, parent), size)


def _check_memory(options: NeighbourSearch, parent: Manifest) -> None:
    largest, dimension = parent.totals["max_documents"], parent.config["dimension"]
    needed = memory_needed(options.search, largest, dimension)
    if needed > options.memory * 2**30:
        raise FarspanError(
            f"--memory {_size(options.memory * 2**30)}: {options.search.k} neighbours of each document in a cluster "
            f"of {largest:,} take {_size(needed)} a worker; lower --k, give more --memory, or make the "
            "clusters again with a smaller --max-documents"
        )


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


@dataclass(frozen=True)
class SearchShard:
    """Search the clusters of one shard, and note those of its documents that are sampled.

    Attributes:
        key, share: of the sample.
    """

    head: Manifest
    dimension: int
    key: bytes
    share: float

    def __call__(self, task: Task, report: Report) -> Receipt:
        path, config = task.payload["shard"], self.head.config
        options = Search(k=config["k"], exact_up_to=config["exact_up_to"], probes=config["probes"], seed=self.head.seed)
        shard = ClusterShard.read(task.payload["clusters"], self.dimension)
        totals = {"documents": len(shard), "tokens": int(shard.tokens.sum()), "neighbours": 0}
        totals |= {"clusters": len(shard.clusters), "documents_searched_exactly": 0}
        sampled = drawn(self.key, shard.column("document_id").to_pylist(), self.share)
        queries = []
        with (
            threadpool_limits(config["threads"]),
            write_shard(path, neighbours_schema(), self.head.rows_per_batch, config["compression"]) as (writer, info),
        ):
            for first, last in shard.clusters:
                lengths = shard.norms(first, last)
                found = search(shard.vectors[first:last], options, _part_of(report, first, last))
                self._write(writer, shard, found, first, last, lengths)
                totals["neighbours"] += int(found.counts.sum())
                totals["documents_searched_exactly"] += (last - first) * (list_count(options, last - first) == 1)
                rows = np.flatnonzero(sampled[first:last])
                queries.append(sampled_queries(shard, found, first, rows, config["k"]))
                report(last)
        write_array(task.payload["queries"], np.concatenate([no_queries(self.dimension, config["k"]), *queries]))
        return Receipt(task.name, tuple(info), totals)

    def _write(
        self, writer: ShardWriter, shard: ClusterShard, found: Neighbours, first: int, last: int, lengths: np.ndarray
    ) -> None:
        schema = neighbours_schema()
        sketches = shard.sketches(first, last)
        for start in range(0, last - first, _BLOCK):
            end = min(start + _BLOCK, last - first)
            rows, products = found.ragged(start, end)
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
    """Progress inside one cluster, in documents."""
    return lambda share: report(first + int(share * (last - first)))
