"""Masks of a corpus's rows, from stored mask sets or drawn by an objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corpora.printing import option_text
from corpora.schemas.corpus import Corpus
from corpora.schemas.sequences import SequenceBatch
from objectives.api.mask_set import MaskSet
from objectives.api.masks import IN_TARGET, MaskBatch
from objectives.api.protocol import CorpusFacts, Objective, draw_key, mask_key, objective_of
from objectives.api.special_tokens import SpecialTokens
from pipelines.masks.job import equip_objective


@dataclass(frozen=True)
class Masker:
    """A source of masks for a corpus's rows.

    Attributes:
        name: name of the mask set's folder, or of the objective.
        masks: function that returns the masks of a batch, given its row numbers in the corpus and the draw.
        draws: number of draws to choose from.
        stored: True for a mask set, whose masks are only read.
    """

    name: str
    objective: Objective
    special: SpecialTokens
    masks: Callable[[SequenceBatch, np.ndarray, int], MaskBatch]
    draws: int = 1
    stored: bool = False

    @classmethod
    def from_mask_set(cls, name: str, stored: MaskSet) -> Masker:
        """Use stored masks; a draw beyond the last is the last."""

        def masks(batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
            return stored.masks(batch, rows, min(draw, stored.draws - 1))

        return cls(name, stored.objective, stored.special_tokens, masks, stored.draws, True)

    @classmethod
    def from_objective(
        cls,
        corpus: Corpus,
        name: str,
        preset: str | None = None,
        options: Mapping[str, Any] | None = None,
        scorer: str | None = None,
        seed: int = 0,
    ) -> Masker:
        """Draw the masks that ``farspan mask`` would store, by an objective or the preset of one."""
        owner, preset = objective_of(name, preset)
        objective = equip_objective(corpus.folder, owner, preset, options or {}, scorer)

        def masks(batch: SequenceBatch, rows: np.ndarray, draw: int) -> MaskBatch:
            return objective.mask(batch, draw_key(mask_key(seed, objective), draw))

        return cls(name, objective, objective.validate(CorpusFacts.of(corpus.manifest)), masks)


def describe_options(objective: Objective) -> str:
    """An objective's options in one line."""
    return ", ".join(f"{name}={option_text(value)}" for name, value in objective.options.items())


def hidden_shares(masks: MaskBatch, tokens: np.ndarray) -> np.ndarray:
    """Percentage of each row's ``(n,)`` tokens that are in targets or labels; ``(n,)`` float64."""
    in_target = np.where(masks.span_flags.values & IN_TARGET != 0, masks.span_lengths.values, 0)
    ends = np.concatenate([[0], np.cumsum(in_target)])
    offsets = masks.span_flags.offsets
    return 100 * (ends[offsets[1:]] - ends[offsets[:-1]]) / np.maximum(tokens, 1)
