"""Units of training, one file per kind: model, batches and counts. ``open_unit`` opens the one that a recipe needs."""

from __future__ import annotations

from trainer.data.config import Source
from trainer.model.config import GeneratorConfig, ModelConfig
from trainer.recipe import Recipe
from trainer.run.units.joint import JointUnit
from trainer.run.units.single import MaskedLMUnit, Seq2SeqUnit
from trainer.run.units.unit import TrainUnit


def unit_type(model: ModelConfig, generator: GeneratorConfig | None) -> type[TrainUnit]:
    """Return the type of unit for ``model``, trained with ``generator``."""
    if generator:
        return JointUnit
    return Seq2SeqUnit if model.decoder else MaskedLMUnit


def open_unit(recipe: Recipe, source: Source | None = None) -> TrainUnit:
    """Open the unit of ``recipe`` with its training data, as ``TrainUnit.open`` does."""
    return unit_type(recipe.model, recipe.generator).open(recipe, source)
