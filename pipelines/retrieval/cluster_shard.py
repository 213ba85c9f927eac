"""A shard of ``farspan.clusters`` in memory, for the search for neighbours."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.retrieval.vector_rows import VectorRows, norms, refuse_not_finite
from corpora.schemas.vectors import clusters_schema
from corpora.storage.ragged import Ragged
from corpora.storage.shards import StoredShard

_LARGEST = float(np.finfo(np.float16).max)


class ClusterShard:
    """A shard of clusters: vectors memory-mapped, small columns copied.

    Attributes:
        vectors: n rows.
        tokens: ``(n,)`` int32.
        cluster_ids: ``(n,)`` int64.
        clusters: first and last + 1 row of each cluster.
    """

    def __init__(self, path: str, batches: list[pa.RecordBatch], whole: pa.Buffer, dimension: int) -> None:
        self.path, self._batches = path, batches
        for batch in batches:
            if batch.column("vector").type.list_size != dimension:
                raise FarspanError(
                    f"{path}: vectors of {batch.column('vector').type.list_size} numbers where the manifest says "
                    f"{dimension}; the shard belongs to another artefact: copy the right one"
                )
        self.vectors = VectorRows.from_batches(batches, dimension, whole)
        self._columns: dict[str, pa.Array] = {}
        self.tokens = self.column("document_tokens").to_numpy()
        self.cluster_ids = self.column("cluster_id").to_numpy()
        edges = np.flatnonzero(np.diff(self.cluster_ids, prepend=-1, append=-1)).tolist()
        self.clusters = list(itertools.pairwise(edges))

    @classmethod
    def read(cls, shard: StoredShard, dimension: int) -> ClusterShard:
        whole, reader = shard.map()
        return cls(shard.path, [reader.get_batch(i) for i in range(reader.num_record_batches)], whole, dimension)

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
