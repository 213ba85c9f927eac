"""A finished mask set on local disk: row i belongs to row i of its corpus."""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np

from corpora.errors import FarspanError
from corpora.shards import ShardedRows
from objectives.base import Objective, load_objective
from objectives.masks import MaskBatch
from objectives.special_tokens import SpecialTokens


class MaskSet(ShardedRows):
    """Rows 0 .. len-1 of a ``farspan.masks`` folder.

    Attributes:
        objective: rebuilt from the manifest's name and options; renders the rows.
        special_tokens: the table that rendering uses.
    """

    def __init__(self, folder: str, format: str = "farspan.masks") -> None:
        super().__init__(folder, format)
        config = self.manifest.config
        self.objective: Objective = load_objective(config["objective"], options=config["options"])
        vocab_size = 1 + max([self.manifest.tokenizer["vocab_size"] - 1, *self.manifest.special_tokens.values()])
        self.special_tokens = SpecialTokens(self.manifest.special_tokens, vocab_size)
        self._view = lru_cache(maxsize=1 << 16)(lambda shard, batch: MaskBatch.from_arrow(self.batch(shard, batch)))

    def take(self, rows: np.ndarray) -> MaskBatch:
        """The given ``(n,)`` rows, in the given order."""
        places = zip(*(column.tolist() for column in self.locate(rows)), strict=True)
        return MaskBatch.gather([(self._view(shard, batch), row) for shard, batch, row in places])

    @property
    def parent_folder(self) -> str:
        """Where the manifest says that the corpus lies.

        Raises:
            FarspanError: it does not lie there.
        """
        path = (self.manifest.parent or {})["path"]
        folder = path if "://" in path else os.path.normpath(os.path.join(os.path.realpath(self.folder), path))
        if not os.path.isdir(folder):
            raise FarspanError(
                f"{self.folder}: its corpus is not on this disk at {folder}; say where it is: --corpus FOLDER"
            )
        return folder

    def check_parent(self, corpus_sha256: str) -> None:
        """Refuse a corpus that this mask set was not made from.

        Args:
            corpus_sha256: of the corpus's ``manifest.json``.

        Raises:
            FarspanError: naming both fingerprints.
        """
        expected = (self.manifest.parent or {}).get("manifest_sha256")
        if expected != corpus_sha256:
            raise FarspanError(
                f"{self.folder}: masks of the corpus with manifest sha256 {expected}, not {corpus_sha256}; "
                "give the corpus it was made from, or run `farspan mask` on this corpus"
            )
