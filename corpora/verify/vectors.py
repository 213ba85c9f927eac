"""Checks of the rows of vectors, clusters and neighbours, batch by batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpora.schemas.vectors import PARTS_OF_CLUSTER, clusters_schema, neighbours_schema, vector_rows, vectors_schema
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from corpora.verify.rows import Check, Problems


class VectorsCheck(Check):
    """Check of rows of vectors."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.schema = vectors_schema(manifest.config["dimension"])
        self.counted = {"documents": 0, "tokens": 0}
        self._rows: list[np.ndarray] = []

    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        vectors = vector_rows(batch.column("vector"))
        for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist():
            yield f"{place} row {row}: vector of document {batch.column('document_id')[row].as_py()!r} is not finite"
        shingles = Ragged.from_arrow(batch.column("shingles")).compact()
        same_row = np.diff(np.repeat(np.arange(len(shingles)), shingles.lengths)) == 0
        if (np.diff(shingles.values.astype(np.int64))[same_row] <= 0).any():
            yield f"{place}: shingles do not ascend"
        self._rows.append(batch.column("document_row").to_numpy())
        self.counted["documents"] += len(batch)
        self.counted["tokens"] += int(batch.column("document_tokens").to_numpy().sum())

    def end(self) -> Problems:
        """Report documents with two vectors."""
        rows = np.sort(np.concatenate([np.empty(0, np.int64), *self._rows]))
        for row in np.unique(rows[1:][rows[1:] == rows[:-1]]).tolist():
            yield f"row {row} of the documents has two vectors"


class ClustersCheck(VectorsCheck):
    """Check of rows of clusters: vectors in the order of their clusters."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.schema = clusters_schema(manifest.config["dimension"])

    def shard(self, name: str, batches: list[pa.RecordBatch]) -> Problems:
        yield from super().shard(name, batches)
        yield from _cluster_order(self.manifest, name, batches)


class NeighboursCheck(Check):
    """Check of rows of neighbours."""

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.schema = neighbours_schema()
        self.counted = {"documents": 0, "tokens": 0}

    def shard(self, name: str, batches: list[pa.RecordBatch]) -> Problems:
        yield from _cluster_order(self.manifest, name, batches)
        self._clusters = np.concatenate([np.empty(0, np.int64), *(b.column("cluster_id").to_numpy() for b in batches)])
        self._first = 0  # row in the shard of the first row of a batch
        yield from super().shard(name, batches)

    def batch(self, place: str, batch: pa.RecordBatch) -> Problems:
        clusters, first = self._clusters, self._first
        lists, similarities, jaccards = (
            Ragged.from_arrow(batch.column(name)).compact() for name in ("neighbours", "similarities", "jaccards")
        )
        rows = np.repeat(np.arange(first, first + len(batch)), lists.lengths)  # (edges,) row in the shard
        if (similarities.lengths != lists.lengths).any() or (jaccards.lengths != lists.lengths).any():
            yield f"{place}: neighbours, similarities and jaccards have different lengths"
        elif ((lists.values < 0) | (lists.values >= len(clusters)) | (lists.values == rows)).any():
            yield f"{place}: a neighbour is not another row of the shard"
        else:
            if (clusters[lists.values] != clusters[rows]).any():
                yield f"{place}: a neighbour is in another cluster"
            if (np.diff(similarities.values.astype(np.float32))[np.diff(rows) == 0] > 0).any():
                yield f"{place}: similarities do not descend"
        self._first += len(batch)
        self.counted["documents"] += len(batch)
        self.counted["tokens"] += int(batch.column("document_tokens").to_numpy().sum())


def _cluster_order(manifest: Manifest, name: str, batches: list[pa.RecordBatch]) -> Problems:
    shard = [info.name for info in manifest.shards].index(name.removeprefix("shards/"))
    last = (-1, -1)
    for number, batch in enumerate(batches):
        clusters, rows = batch.column("cluster_id").to_numpy(), batch.column("document_row").to_numpy()
        order = np.lexsort((rows, clusters))
        if (order != np.arange(len(order))).any() or (len(rows) and (int(clusters[0]), int(rows[0])) < last):
            yield f"{name} batch {number}: rows are not in the order of clusters and documents"
        if (clusters // PARTS_OF_CLUSTER != shard).any():
            yield f"{name} batch {number}: holds another shard's cluster"
        last = (int(clusters[-1]), int(rows[-1])) if len(rows) else last
