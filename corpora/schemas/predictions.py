"""Predictions: the texts that a model generated for pairs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairSet
from corpora.schemas.sequences import Column, make_schema, token_list
from corpora.storage.manifest_file import manifest_sha256, parent_folder
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows

PREDICTION_TOTALS = ("predictions", "tokens", "empty_predictions", "max_tokens")
"""Totals of a predictions artefact; ``empty_predictions`` counts predictions without any token."""

TEXTS = "predictions.json"
"""File in the folder with the texts by pair id, as the SCROLLS server takes them."""


PREDICTION_COLUMNS = {
    "pair_id": Column(pa.string(), "the pair"),
    "text": Column(pa.string(), "the generated text"),
    "tokens": Column(token_list, "the generated ids"),  # without begin and end tokens
    "score": Column(pa.float32(), "log-probability of the text divided by the length penalty"),
}


def predictions_schema(vocab_size: int) -> pa.Schema:
    """Return the columns of ``farspan.predictions`` (docs/formats.md): one row per pair of the split, in stored order.

    ``vocab_size``: rows of the model's embedding table.
    """
    return make_schema(PREDICTION_COLUMNS, vocab_size)


class PredictionSet(ShardedRows):
    """The predictions 0 .. len-1 of a ``farspan.predictions`` folder, in the order of the pairs of their ``split``."""

    def __init__(self, folder: str, verify: bool = False) -> None:
        super().__init__(folder, "farspan.predictions", verify)
        self.schema = predictions_schema(self.manifest.config["model"]["vocab_size"])
        self.split: str = self.manifest.config["split"]

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "verify": self.verify}

    @property
    def pair_ids(self) -> list[str]:
        """Id of the pair of each prediction."""
        return self._texts("pair_id")

    @property
    def texts(self) -> list[str]:
        """The generated texts."""
        return self._texts("text")

    @property
    def scores(self) -> np.ndarray:
        """Scores of the search, ``(len,)`` float32."""
        columns = [batch.column("score").to_numpy() for batch in self.batches()]
        return np.concatenate([np.empty(0, np.float32), *columns])

    def open_pairs(self, folder: str | None = None, documents: str | None = None) -> PairSet:
        """Open the pairs that the predictions answer; None stands for the recorded folders of pairs and documents."""
        pairs = PairSet(folder or parent_folder(self.folder, "--pairs"), documents, self.verify)
        assert self.manifest.parent is not None
        if manifest_sha256(pairs.folder) != self.manifest.parent["manifest_sha256"]:
            raise FarspanError(
                f"{self.folder}: its predictions answer other pairs than those in {pairs.folder}; give the pairs that "
                "they were generated for, or run `farspan generate` again"
            )
        return pairs

    def _texts(self, column: str) -> list[str]:
        return [text for batch in self.batches() for text in batch.column(column).to_pylist()]


def add_prediction_totals(totals: dict[str, int], batch: pa.RecordBatch) -> None:
    """Add the counts of a batch of ``predictions_schema`` to ``totals``, which has all ``PREDICTION_TOTALS``."""
    lengths = Ragged.from_arrow(batch.column("tokens")).lengths
    totals["predictions"] += len(batch)
    totals["tokens"] += int(lengths.sum())
    totals["empty_predictions"] += int((lengths == 0).sum())
    totals["max_tokens"] = max(totals["max_tokens"], int(lengths.max(initial=0)))


def open_predictions(folder: str | os.PathLike[str], *, verify: bool = False) -> PredictionSet:
    """Open predictions.

    Args:
        folder: folder written by ``farspan generate``.
        verify: compare each shard with its checksum on first use.

    Raises:
        FarspanError: no finished predictions there.
    """
    return PredictionSet(os.fspath(folder), verify)
