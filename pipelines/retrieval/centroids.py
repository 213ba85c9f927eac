"""First-level centroids of `farspan cluster`: a sample of the vectors, and k-means on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from corpora.keyed import drawn
from corpora.retrieval.kmeans import kmeans_seed, train_centroids
from corpora.retrieval.vector_rows import require_finite
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Receipt
from corpora.storage.shards import StoredShard
from pipelines.engine.handed_on import npy_bytes, read_array, write_array
from pipelines.engine.job import Report, Task


@dataclass(frozen=True)
class Sample:
    """Draw a sample of the vectors of some shards, by hashes of their documents' ids.

    Attributes:
        share: share of the vectors to draw; 1 or more takes all of them.
    """

    key: bytes
    share: float
    dimension: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        chosen, done = [np.empty((0, self.dimension), np.float16)], 0
        for shard, batch in record_batches(task.payload["shards"]):
            done += len(batch)
            report(done)
            vectors = require_finite(batch, self.dimension, shard)
            chosen.append(vectors[drawn(self.key, batch.column("document_id").to_pylist(), self.share)])
        write_array(task.payload["sample"], np.concatenate(chosen))
        return Receipt(task.name)


def record_batches(shards: Sequence[StoredShard]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read the record batches of all shards, each with the path of its shard."""
    for shard in shards:
        for batch in shard.batches():
            yield shard.path, batch


@dataclass(frozen=True)
class Train:
    """Train the centroids on the samples of all shards."""

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
        # read back, because another attempt may have stored centroids first that differ in the last bits
        write_bytes(task.payload["published"], npy_bytes(read_array(task.payload["centroids"])))
        return Receipt(task.name)
