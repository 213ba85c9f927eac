"""Masks of a corpus's rows, from stored mask sets or drawn by an objective."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from corpora.printing import option_text
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_TARGET, MaskBatch
from objectives.api.protocol import CorpusFacts, Objective, draw_key, mask_key, objective_of
from objectives.api.special_tokens import SpecialTokens
from pipelines.masks.job import equip_objective


class Masker(Protocol):
    """Interface of a source of masks for a corpus's rows.

    Attributes:
        name: name of the mask set's folder, or of the objective.
        draws: number of masks of each row; None if there may be any number.
    """

    @property
    def name(self) -> str: ...

    @property
    def draws(self) -> int | None: ...

    @property
    def objective(self) -> Objective: ...

    @property
    def special(self) -> SpecialTokens: ...

    def masks(self, batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
        """Return the masks of ``batch``, the rows ``rows`` of the corpus."""


@dataclass(frozen=True)
class Stored:
    """A mask set."""

    name: str
    stored: MaskSet

    @property
    def draws(self) -> int:
        return self.stored.draws

    @property
    def objective(self) -> Objective:
        return self.stored.objective

    @property
    def special(self) -> SpecialTokens:
        return self.stored.special_tokens

    def masks(self, batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
        return self.stored.masks(batch, rows, min(draw, self.stored.draws - 1))


@dataclass(frozen=True)
class Drawn:
    """An objective, with the masks that ``farspan mask`` would store."""

    name: str
    objective: Objective
    special: SpecialTokens
    seed: int = 0
    draws: None = None

    @classmethod
    def load(
        cls,
        corpus: Corpus,
        name: str,
        preset: str | None = None,
        options: Mapping[str, Any] | None = None,
        scorer: str | None = None,
        seed: int = 0,
    ) -> Drawn:
        """Load an objective, or the preset of one, for a corpus."""
        owner, preset = objective_of(name, preset)
        objective = equip_objective(corpus.folder, owner, preset, options or {}, scorer)
        return cls(name, objective, objective.validate(CorpusFacts.of(corpus.manifest)), seed)

    def masks(self, batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
        return self.objective.mask(batch, draw_key(mask_key(self.seed, self.objective), draw))


def describe_options(objective: Objective) -> str:
    """An objective's options in one line."""
    return ", ".join(f"{name}={option_text(value)}" for name, value in objective.options.items())


def hidden_shares(masks: MaskBatch, tokens: np.ndarray) -> np.ndarray:
    """Percentage of each row's ``(n,)`` tokens that are in targets or labels; ``(n,)`` float64."""
    in_target = np.where(masks.span_flags.values & IN_TARGET != 0, masks.span_lengths.values, 0)
    ends = np.concatenate([[0], np.cumsum(in_target)])
    offsets = masks.span_flags.offsets
    return 100 * (ends[offsets[1:]] - ends[offsets[:-1]]) / np.maximum(tokens, 1)
