"""Selection of the unit of training for a recipe."""

from __future__ import annotations

from trainer.data.config import Source
from trainer.recipe import Recipe
from trainer.run.units.joint import JointUnit
from trainer.run.units.masked_lm import MaskedLMUnit
from trainer.run.units.seq2seq import Seq2SeqUnit
from trainer.run.units.unit import TrainUnit


def unit_type(recipe: Recipe) -> type[TrainUnit]:
    """Return the type of unit for ``recipe``."""
    if recipe.generator and recipe.generator.mode == "joint":
        return JointUnit
    return Seq2SeqUnit if recipe.model.decoder else MaskedLMUnit


def open_unit(recipe: Recipe, source: Source | None = None) -> TrainUnit:
    """Open the unit of ``recipe`` with its training data, as ``TrainUnit.open`` does."""
    return unit_type(recipe).open(recipe, source)
