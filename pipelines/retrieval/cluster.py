"""``farspan cluster``: vectors to clusters, so that neighbours are sought among those that can be near.

Stage *sample* draws vectors, *train* finds centroids, *assign* deals vectors out to first-level clusters, *gather*
reads one of them back from all spills, splits it if it is too large and writes it as a shard. A cluster's vectors stay
in mapped files; memory is a few numbers for each of its documents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from corpora.errors import FarspanError
from corpora.keyed import drawn, make_key
from corpora.retrieval.kmeans import POINTS_PER_CENTROID, assign, centroid_count, kmeans_seed, split, train_centroids
from corpora.retrieval.vector_rows import require_finite
from corpora.schemas.vectors import PARTS_OF_CLUSTER, clusters_schema, vector_rows, vectors_schema
from corpora.storage import files
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Manifest, Receipt, read_manifest
from corpora.storage.shards import shard_name, write_shard
from corpora.storage.stored_shards import StoredShard, stored_shards
from pipelines.engine.artefacts import absolute, inherit_tokenizer, parent_entry
from pipelines.engine.finalize import WORK
from pipelines.engine.handed_on import npy_bytes, read_array, write_array, write_batch
from pipelines.engine.job import Job, Report, Stage, Task
from pipelines.retrieval.options import Clustering
from pipelines.retrieval.spilled_vectors import SpilledVectors

CENTROIDS = "centroids.npy"
_CLUSTERS, _DOCUMENTS = 256, 20_000
_SAMPLE_PER_CENTROID = 1024


def first_level(options: Clustering, documents: int) -> int:
    """First-level clusters of so many vectors.

    Raises:
        FarspanError: these cannot carry as many as asked for.
    """
    points = min(documents, options.sample)
    clusters = centroid_count(options.centroids or max(1, min(_CLUSTERS, documents // _DOCUMENTS)), points)
    if clusters < options.centroids:
        raise FarspanError(
            f"--centroids {options.centroids}: k-means has {points:,} vectors to learn from and needs "
            f"{POINTS_PER_CENTROID} for each; give at most {clusters}, or leave the choice to the job"
        )
    return clusters


def plan(options: Clustering) -> Job:
    """Check the options and lay out the tasks.

    Raises:
        FarspanError: no finished vectors there, none in them, or too few for the clusters asked for.
    """
    vectors, output = absolute(options.vectors), absolute(options.output)
    parent = read_manifest(vectors, "farspan.vectors")
    documents, dimension = sum(shard.rows for shard in parent.shards), parent.config["dimension"]
    if not documents:
        raise FarspanError(f"{vectors}: holds no vector; embed documents that have tokens in the split")
    clusters = first_level(options, documents)
    head = Manifest(
        format="farspan.clusters",
        config={
            "builder": "cluster",
            "dimension": dimension,
            "split": parent.config["split"],
            "centroids": clusters,
            "spherical": options.spherical,
            "iterations": options.iterations,
            "sample": min(options.sample, clusters * _SAMPLE_PER_CENTROID),
            "max_documents": options.max_documents,
            "task_documents": options.task_documents,
            "threads": options.threads,
            "compression": options.compression,
        },
        seed=options.seed,
        rows_per_batch=parent.rows_per_batch,
        tokenizer=parent.tokenizer,
        parent=parent_entry(output, vectors),
    )
    groups = _groups([shard.rows for shard in parent.shards], options.task_documents)
    stored = stored_shards(vectors, parent)
    shards = [[stored[index] for index in group] for group in groups]
    rows = [sum(parent.shards[index].rows for index in group) for group in groups]
    samples = tuple(os.path.join(output, WORK, f"sample-{index:05d}.npy") for index in range(len(groups)))
    spills = tuple(os.path.join(output, WORK, f"spill-{index:05d}.arrow") for index in range(len(groups)))
    centroids = os.path.join(output, WORK, CENTROIDS)
    made = [os.path.join(output, "shards", shard_name(cluster, clusters)) for cluster in range(clusters)]
    sample = Stage(
        "sample",
        [Task(f"sample-{i:05d}", {"shards": shards[i], "sample": samples[i]}, n) for i, n in enumerate(rows)],
        Sample(make_key(options.seed, "k-means sample"), head.config["sample"] / documents, dimension),
        "documents",
    )
    train = Stage(
        "train",
        [Task("train", {"centroids": centroids, "published": os.path.join(output, CENTROIDS)}, clusters)],
        Train(samples, clusters, options.spherical, options.iterations, options.seed, options.threads),
        "clusters",
    )
    assigning = Stage(
        "assign",
        [Task(f"assign-{i:05d}", {"shards": shards[i], "spill": spills[i]}, n) for i, n in enumerate(rows)],
        Assign(centroids, options.spherical, dimension, options.threads),
        "documents",
    )
    gather = Stage(
        "gather",
        [Task(f"gather-{c:05d}", {"cluster": c, "shard": path}, 1) for c, path in enumerate(made)],
        Gather(spills, head, options.seed),
        "clusters",
    )
    copy = partial(inherit_tokenizer, vectors, parent)
    return Job(output, head, [sample, train, assigning, gather], copy, sum(shard.bytes for shard in parent.shards))


def _groups(rows: Sequence[int], most: int) -> list[list[int]]:
    """Consecutive shards, together of at most ``most`` rows, or one that has more."""
    groups: list[list[int]] = []
    size = 0
    for index, count in enumerate(rows):
        if not groups or size + count > most:
            groups.append([])
            size = 0
        groups[-1].append(index)
        size += count
    return groups


@dataclass(frozen=True)
class Sample:
    """Draw vectors of some shards by the hashes of their documents' ids.

    Attributes:
        share: of all vectors; 1 or more takes every one.
    """

    key: bytes
    share: float
    dimension: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        chosen, done = [np.empty((0, self.dimension), np.float16)], 0
        for shard, batch in _batches(task.payload["shards"]):
            done += len(batch)
            report(done)
            vectors = require_finite(batch, self.dimension, shard)
            chosen.append(vectors[drawn(self.key, batch.column("document_id").to_pylist(), self.share)])
        write_array(task.payload["sample"], np.concatenate(chosen))
        return Receipt(task.name)


def _batches(shards: Sequence[StoredShard]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The record batches of all ``shards``, each with the path of its shard."""
    for shard in shards:
        for batch in shard.batches():
            yield shard.path, batch


@dataclass(frozen=True)
class Train:
    """Centroids from the samples of all shards."""

    samples: tuple[str, ...]
    clusters: int
    spherical: bool
    iterations: int
    seed: int
    threads: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        sample = np.concatenate([read_array(path) for path in self.samples])
        with threadpool_limits(self.threads):
            seed = kmeans_seed(self.seed, "k-means")
            centroids = train_centroids(sample, self.clusters, self.spherical, self.iterations, seed)
        write_array(task.payload["centroids"], centroids)
        published = task.payload["published"]
        write_bytes(published, npy_bytes(centroids))
        return Receipt(task.name)


@dataclass(frozen=True)
class Assign:
    """Deal the vectors of some shards out: record batch c of the spill is what first-level cluster c gets of it."""

    centroids: str
    spherical: bool
    dimension: int
    threads: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        spill, schema = task.payload["spill"], vectors_schema(self.dimension)
        centroids = read_array(self.centroids)
        batches = [batch for _, batch in _batches(task.payload["shards"])]
        batch = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)
        with threadpool_limits(self.threads):
            labels = assign(vector_rows(batch.column("vector")), centroids, self.spherical)
        ordered = batch.take(pa.array(np.argsort(labels, kind="stable")))
        ends = np.cumsum(np.bincount(labels, minlength=len(centroids)))
        with files.create(spill) as file, pa.ipc.new_file(pa.PythonFile(file, "w"), schema) as writer:
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                write_batch(writer, ordered.slice(start, end - start))
        return Receipt(task.name)


@dataclass(frozen=True)
class Gather:
    """Read one first-level cluster from all spills, split it if need be, and write it in the order of its parts."""

    spills: tuple[str, ...]
    head: Manifest
    seed: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        cluster, path, config = task.payload["cluster"], task.payload["shard"], self.head.config
        vectors = SpilledVectors.read(self.spills, cluster)
        parts = np.zeros(len(vectors), np.int64)
        if len(vectors) > config["max_documents"]:
            with threadpool_limits(config["threads"]):
                parts = split(
                    vectors,
                    config["max_documents"],
                    config["spherical"],
                    config["iterations"],
                    kmeans_seed(self.seed, f"split {cluster}"),
                )
        sizes = np.bincount(parts)
        if len(sizes) > PARTS_OF_CLUSTER:
            raise FarspanError(
                f"--max-documents {config['max_documents']}: cuts cluster {cluster} into {len(sizes):,} parts, more "
                f"than the {PARTS_OF_CLUSTER:,} that can be numbered; give a larger one"
            )
        order = np.lexsort((vectors.document_rows, parts))
        schema, rows = clusters_schema(config["dimension"]), self.head.rows_per_batch
        tokens = 0
        with write_shard(path, schema, rows, config["compression"]) as (writer, info):
            for first in range(0, len(order), rows):
                chosen = order[first : first + rows]
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
