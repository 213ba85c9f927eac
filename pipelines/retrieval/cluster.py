"""``farspan cluster``: divide vectors into clusters, within which neighbours are searched.

Stages *sample* and *train* find centroids; *assign* partitions vectors into first-level clusters; *gather* reads one
cluster from all spill files, splits it if it is too large and writes it as a shard. A cluster's vectors stay in mapped
files; only a few numbers per document are held in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from corpora.errors import FarspanError
from corpora.keyed import make_key, select_share
from corpora.options import record_options
from corpora.retrieval.kmeans import POINTS_PER_CENTROID, assign, centroid_count, kmeans_seed, split, train_centroids
from corpora.retrieval.vector_rows import require_finite
from corpora.schemas.vectors import PARTS_OF_CLUSTER, clusters_schema, vector_rows, vectors_schema
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Receipt
from corpora.storage.shards import StoredShard, write_shard
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.job import WORK, Job, Report, Stage, Task, make_sharded_stage, shard_paths, work_paths
from pipelines.retrieval.options import Clustering
from pipelines.shuffle.intermediate import npy_bytes, partition, read_array, read_batch, write_array, write_batches
from pipelines.shuffle.spill import join_batches

CENTROIDS = "centroids.npy"
_CLUSTERS, _DOCUMENTS = 256, 20_000
_SAMPLE_PER_CENTROID = 1024


def first_level(options: Clustering, documents: int) -> int:
    """Number of first-level clusters for a number of vectors."""
    points = min(documents, options.sample)
    clusters = centroid_count(options.centroids or max(1, min(_CLUSTERS, documents // _DOCUMENTS)), points)
    if clusters < options.centroids:
        raise FarspanError(
            f"--centroids {options.centroids}: k-means has {points:,} vectors to learn from and needs "
            f"{POINTS_PER_CENTROID} for each; give at most {clusters}, or leave the choice to the job"
        )
    return clusters


def plan(options: Clustering) -> Job:
    """Check the options and declare the tasks."""
    output, vectors = absolute(options.output), Parent.read(options.vectors, "farspan.vectors")
    documents = vectors.first_rows[-1]
    if not documents:
        raise FarspanError(f"{vectors.folder}: holds no vector; embed documents that have tokens in the split")
    clusters = first_level(options, documents)
    options = replace(options, centroids=clusters, sample=min(options.sample, clusters * _SAMPLE_PER_CENTROID))
    inherited = {name: vectors.manifest.config[name] for name in ("dimension", "split")}
    return declare_derived_job(
        output,
        vectors,
        _stages(options, vectors, output),
        format="farspan.clusters",
        config={"builder": "cluster", **inherited, **record_options(options)},
        seed=options.seed,
    )


def _stages(options: Clustering, vectors: Parent, output: str) -> list[Stage]:
    dimension, clusters = vectors.manifest.config["dimension"], options.centroids
    groups = _groups(vectors.shards, options.task_documents)
    rows = [sum(shard.rows for shard in group) for group in groups]
    samples = work_paths(output, "sample", len(groups), ".npy")
    spills = work_paths(output, "spill", len(groups), ".arrow")
    centroids = os.path.join(output, WORK, CENTROIDS)
    train = Task("train", {"centroids": centroids, "published": os.path.join(output, CENTROIDS)}, clusters)
    key, share = make_key(options.seed, "k-means sample"), options.sample / vectors.first_rows[-1]
    gather = partial(_gather, options, spills, dimension, vectors.manifest.rows_per_batch)
    return [
        make_sharded_stage(
            "sample", partial(_sample, key, share, dimension), "documents", rows, shards=groups, sample=samples
        ),
        Stage("train", [train], partial(_train, options, samples), "clusters"),
        make_sharded_stage(
            "assign", partial(_assign, options, centroids, dimension), "documents", rows, shards=groups, spill=spills
        ),
        make_sharded_stage("gather", gather, "clusters", [1] * clusters, shard=shard_paths(output, clusters)),
    ]


def _groups(shards: Sequence[StoredShard], max_rows: int) -> list[list[StoredShard]]:
    """Group consecutive shards up to ``max_rows`` rows; a larger shard is a group of its own."""
    groups: list[list[StoredShard]] = []
    size = 0
    for shard in shards:
        if not groups or size + shard.rows > max_rows:
            groups.append([])
            size = 0
        groups[-1].append(shard)
        size += shard.rows
    return groups


def _sample(key: bytes, share: float, dimension: int, task: Task, report: Report) -> Receipt:
    """Draw a share of the vectors of some shards, all of them for 1 or more, by hashes of their documents' ids."""
    chosen, done = [np.empty((0, dimension), np.float16)], 0
    for shard, batch in _record_batches(task.payload["shards"]):
        done += len(batch)
        report(done)
        vectors = require_finite(batch, dimension, shard)
        chosen.append(vectors[select_share(key, batch.column("document_id").to_pylist(), share)])
    write_array(task.payload["sample"], np.concatenate(chosen))
    return Receipt(task.name)


def _record_batches(shards: Sequence[StoredShard]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read the record batches of all shards, each with the path of its shard."""
    for shard in shards:
        for batch in shard.batches():
            yield shard.path, batch


def _train(options: Clustering, samples: Sequence[str], task: Task, report: Report) -> Receipt:
    """Train the centroids on the samples of all shards."""
    sample = np.concatenate([read_array(path) for path in samples])
    with threadpool_limits(options.threads):
        seed = kmeans_seed(options.seed, "k-means")
        centroids = train_centroids(sample, options.centroids, options.spherical, options.iterations, seed)
    write_array(task.payload["centroids"], centroids)
    # read back, because another attempt may have stored centroids first that differ in the last bits
    write_bytes(task.payload["published"], npy_bytes(read_array(task.payload["centroids"])))
    return Receipt(task.name)


def _assign(options: Clustering, centroids: str, dimension: int, task: Task, report: Report) -> Receipt:
    """Partition the vectors of some shards: record batch c of the spill file holds those of first-level cluster c."""
    schema, means = vectors_schema(dimension), read_array(centroids)
    batch = join_batches([batch for _, batch in _record_batches(task.payload["shards"])], schema)
    with threadpool_limits(options.threads):
        labels = assign(vector_rows(batch.column("vector")), means, options.spherical)
    parts = partition(labels, len(means))
    write_batches(task.payload["spill"], schema, (batch.take(pa.array(rows)) for rows in parts))
    return Receipt(task.name)


class SpilledVectors:
    """One first-level cluster in the spill files of all shards: its rows under one numbering, read in blocks.

    They are views of local files, copies of others.
    """

    def __init__(self, spills: Sequence[str], cluster: int) -> None:
        self._batches = [read_batch(spill, cluster) for spill in spills]
        # starts: (batches + 1,) int64, the number of each batch's first row
        self._starts = np.cumsum([0, *map(len, self._batches)])
        self.document_rows = np.concatenate([batch.column("document_row").to_numpy() for batch in self._batches])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def take(self, rows: np.ndarray) -> pa.RecordBatch:
        """Copy the given rows, in their order."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(batches, kind="stable")
        numbers, firsts = np.unique(batches[order], return_index=True)
        pieces = [
            self._batches[number].take(pa.array(rows[chosen] - self._starts[number]))
            for number, chosen in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)
        ]
        return pa.concat_batches(pieces).take(pa.array(np.argsort(order)))

    def floats(self, rows: np.ndarray) -> np.ndarray:
        """``(len(rows), d)`` float32."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        out = np.empty((len(rows), self._batches[0].column("vector").type.list_size), np.float32)
        for number in np.unique(batches).tolist():
            chosen = batches == number
            vectors = vector_rows(self._batches[number].column("vector"))
            out[chosen] = vectors[rows[chosen] - self._starts[number]]
        return out


def _gather(
    options: Clustering, spills: Sequence[str], dimension: int, rows_per_batch: int, task: Task, report: Report
) -> Receipt:
    """Read one first-level cluster from all spill files, split it if it is too large, and write it part by part."""
    cluster, most = task.payload["index"], options.max_documents
    vectors = SpilledVectors(spills, cluster)
    parts = np.zeros(len(vectors), np.int64)
    if len(vectors) > most:
        seed = kmeans_seed(options.seed, f"split {cluster}")
        with threadpool_limits(options.threads):
            parts = split(vectors, most, options.spherical, options.iterations, seed)
    sizes = np.bincount(parts)
    if len(sizes) > PARTS_OF_CLUSTER:
        raise FarspanError(
            f"--max-documents {most}: cuts cluster {cluster} into {len(sizes):,} parts, more than the "
            f"{PARTS_OF_CLUSTER:,} that can be numbered; give a larger one"
        )
    order = np.lexsort((vectors.document_rows, parts))
    schema, tokens = clusters_schema(dimension), 0
    with write_shard(task.payload["shard"], schema, rows_per_batch, options.compression) as (writer, info):
        for first in range(0, len(order), rows_per_batch):
            chosen = order[first : first + rows_per_batch]
            batch = vectors.take(chosen)
            ids = pa.array(cluster * PARTS_OF_CLUSTER + parts[chosen])
            writer.write(batch.add_column(schema.get_field_index("cluster_id"), schema.field("cluster_id"), ids))
            tokens += int(batch.column("document_tokens").to_numpy().sum())
    totals = {
        "documents": len(vectors),
        "tokens": tokens,
        "clusters": len(sizes),
        "split_clusters": int(len(sizes) > 1),
        "max_documents": int(sizes.max(initial=0)),
        "max_first_level": len(vectors),
    }
    return Receipt(task.name, tuple(info), totals)
