"""``MaskSet``, a finished mask set opened for reading: row i masks row i of its corpus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from corpora.storage import files
from corpora.storage.gather import Gatherable
from corpora.storage.manifest_file import NAME, find_parent, manifest_sha256, parent_folder, resolve
from corpora.storage.shard_cache import ShardCache
from corpora.storage.sharded_rows import ShardedRows
from objectives.api.masks import MaskBatch, mask_schema
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.api.special_tokens import SpecialTokens, table_fault


class MaskSet(ShardedRows):
    """The rows 0 .. len-1 of a ``farspan.masks`` folder.

    Attributes:
        objective: the objective, rebuilt from the manifest's name and options; renders the rows.
        special_tokens: the table that rendering uses.
        draws: number of masks of each corpus row; draw d of row i is row ``d * rows + i``.
        adjusted: True if ``options`` override those of the manifest.
    """

    def __init__(
        self,
        folder: str,
        options: Mapping[str, Any] | None = None,
        verify: bool = False,
        cache: ShardCache | None = None,
    ) -> None:
        """Open a mask set with ``adjustable`` options of its objective, which change the selection among candidates.

        ``cache``: cache for the shards of a remote mask set; None for private temporary files.
        """
        super().__init__(folder, "farspan.masks", verify, cache)
        self._options = options
        config, tokenizer, path = self.manifest.config, self.manifest.tokenizer, os.path.join(folder, NAME)
        wrong = table_fault(self.manifest.special_tokens, tokenizer["vocab_size"], tokenizer["owned_tokens"])
        if wrong:
            raise FarspanError(f"{path}: its table of special_tokens {wrong}; run `farspan mask` again")
        self.objective = load_objective(config["objective"], options={**config["options"], **(options or {})})
        if not options and self.objective.global_attention != config["global_attention"]:
            raise FarspanError(
                f"{path}: says global_attention {config['global_attention']!r}, objective {self.objective.name} with "
                f"these options {self.objective.global_attention!r}; run `farspan mask` again"
            )
        self.schema = mask_schema(self.objective)
        self.draws: int = config["draws"]
        if type(self.draws) is not int or self.draws < 1 or len(self) % self.draws:
            raise FarspanError(
                f"{folder}: manifest.json says draws {self.draws!r} of {len(self)} rows; restore it, or run "
                "`farspan mask` again"
            )
        self.adjusted = bool(options)
        adjustable = getattr(self.objective, "adjustable", ())
        for option in options or {}:
            if option not in adjustable:
                raise FarspanError(
                    f"{folder}: option {option} of objective {self.objective.name} cannot be changed on stored masks "
                    f"(can be: {', '.join(adjustable) or 'none'}); run `farspan mask` with it"
                )
        vocab_size = 1 + max([self.manifest.tokenizer["vocab_size"] - 1, *self.manifest.special_tokens.values()])
        self.special_tokens = SpecialTokens(self.manifest.special_tokens, vocab_size)
        self._view = self.cache_by_batch(
            lambda shard, batch: Gatherable.of(MaskBatch.from_arrow(self.batch(shard, batch)))
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "options": self._options, "verify": self.verify, "cache": self.cache}

    def take(self, rows: np.ndarray) -> MaskBatch:
        """Copy the given rows ``(n,)`` as they are stored, in the given order."""
        return self.gather(rows, self._view)

    def masks(self, batch: SequenceBatch, rows: np.ndarray, draws: np.ndarray | int = 0) -> MaskBatch:
        """Return the masks of corpus rows by the current options.

        ``batch``: n rows of the corpus. ``rows``: ``(n,)`` their row numbers. ``draws``: the draw of each row, ``(n,)``
        or a scalar, less than ``self.draws``.
        """
        stored = self.take(rows + draws * (len(self) // self.draws))
        return self.objective.select(batch, stored) if self.adjusted else stored  # type: ignore[attr-defined]

    @property
    def parent_folder(self) -> str:
        """Recorded folder of the corpus."""
        folder = parent_folder(self.folder, "--corpus")
        if not files.exists(os.path.join(folder, NAME)):
            raise FarspanError(f"{self.folder}: its corpus is not at {folder}; give its folder: --corpus FOLDER")
        return folder

    def check_parent(self, corpus: ShardedRows) -> None:
        """Check that this mask set was made from ``corpus`` and has the special tokens that its options need."""
        digest = manifest_sha256(corpus.folder)
        parent = self.manifest.parent or {}
        if parent.get("manifest_sha256") != digest:
            made_from = find_parent(self.folder)
            why = f"but of the one that was at {made_from or 'another place'}; give that one, or"
            if made_from == resolve(corpus.folder, "."):
                why = "which has changed since;"
            raise FarspanError(
                f"{self.folder}: its masks are not those of the corpus {corpus.folder}, {why} run `farspan mask` on "
                "this corpus"
            )
        ours, theirs = self.manifest, corpus.manifest
        for what, mine, other in (
            ("tokenizer", ours.tokenizer, theirs.tokenizer),
            ("rows_per_batch", ours.rows_per_batch, theirs.rows_per_batch),
            ("rows of the shards", [s.rows for s in ours.shards], [s.rows for s in theirs.shards] * self.draws),
        ):
            if mine != other:
                raise FarspanError(
                    f"{self.folder}: its {what} {_short(mine)} differ from {_short(other)} of its corpus "
                    f"{corpus.folder}; run `farspan mask` on this corpus again"
                )
        if self.adjusted:
            needed = self.objective.validate(CorpusFacts.of(corpus.manifest)).ids
            if lacking := len(needed.keys() - self.special_tokens.ids.keys()):
                raise FarspanError(
                    f"{self.folder}: these options may need {lacking} special tokens more than its manifest numbers; "
                    "hide less, or run `farspan mask` with room for them"
                )


def open_masks(
    folder: str | os.PathLike[str], *, options: Mapping[str, Any] | None = None, verify: bool = False
) -> MaskSet:
    """Open a mask set.

    Args:
        folder: folder written by ``farspan mask``.
        options: options that the objective lists as ``adjustable``, to change the selection among stored candidates.
        verify: compare each shard with its checksum on first use.

    Raises:
        FarspanError: no finished mask set there, or an option that cannot be adjusted.
    """
    return MaskSet(os.fspath(folder), options, verify)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
