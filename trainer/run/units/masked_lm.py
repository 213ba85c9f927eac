"""Training of an encoder alone on the masked tokens of its input."""

from __future__ import annotations

import torch

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from trainer.data.batch import Batch
from trainer.data.config import DataConfig
from trainer.data.curriculum import Stage
from trainer.data.mixture import Mixture
from trainer.recipe import Recipe
from trainer.run.units.unit import ModelSize, TrainUnit, has_labels, random_ids

_MASKED = 4
"""Positions per masked one in the dry run and the memory estimate; objectives mask fewer."""


class MaskedLMUnit(TrainUnit):
    """The unit of a model without a decoder."""

    @classmethod
    def sizes(cls, recipe: Recipe, stage: Stage) -> list[ModelSize]:
        return [ModelSize(stage.model(recipe.model), stage.data.source_length // _MASKED)]

    def check_examples(self, mixture: Mixture, data: DataConfig, section: str) -> None:
        if not has_labels(mixture):
            raise FarspanError(
                f"{section}: the objective has a target text; add a model.decoder section to the recipe, or give "
                "another objective"
            )

    def largest_batch(self, stage: Stage, vocab_size: int) -> Batch:
        rows, width = min(stage.micro_batch_size, stage.batch_size), stage.data.source_length
        (source,) = random_ids(vocab_size, (rows, width))
        return Batch.full(source, source.masked_fill(torch.arange(width) % _MASKED > 0, IGNORED), None)
