"""One first-level cluster, read from the spill files of all shards of vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpora.schemas.vectors import vector_rows
from pipelines.engine.handed_on import read_batch


class SpilledVectors:
    """Rows of many record batches under one numbering, read in blocks."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._batches = batches
        # starts: (batches + 1,) int64, the number of each batch's first row
        self._starts = np.cumsum([0, *(len(batch) for batch in batches)])
        self.document_rows = np.concatenate([batch.column("document_row").to_numpy() for batch in batches])

    @classmethod
    def read(cls, spills: Sequence[str], cluster: int) -> SpilledVectors:
        """Read a cluster from all spill files: views of local files, copies of others."""
        return cls([read_batch(spill, cluster) for spill in spills])

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
