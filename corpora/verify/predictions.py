"""Checks of the rows of predictions, batch by batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from corpora.schemas.predictions import PREDICTION_TOTALS, add_prediction_totals, predictions_schema
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from corpora.verify.rows import Problems


class PredictionsCheck:
    """Check of rows of predictions."""

    def __init__(self, manifest: Manifest) -> None:
        self._vocab_size = manifest.config["model"]["vocab_size"]
        self.schema = predictions_schema(self._vocab_size)
        self.counted = dict.fromkeys(PREDICTION_TOTALS, 0)
        self._seen: set[str] = set()

    def shard(self, manifest: Manifest, name: str, batches: list[pa.RecordBatch]) -> Problems:
        for number, batch in enumerate(batches):
            place = f"{name} batch {number}"
            tokens = Ragged.from_arrow(batch.column("tokens")).compact()
            if len(tokens.values) and int(tokens.values.max()) >= self._vocab_size:
                yield f"{place}: token {tokens.values.max()} is outside the model's vocabulary of {self._vocab_size}"
            for row in np.flatnonzero(~np.isfinite(batch.column("score").to_numpy())).tolist():
                yield f"{place} row {row}: the score is not finite"
            for pair in batch.column("pair_id").to_pylist():
                if pair in self._seen:
                    yield f"{place}: pair {pair!r} has two predictions"
                self._seen.add(pair)
            add_prediction_totals(self.counted, batch)

    def end(self) -> Problems:
        return iter(())
