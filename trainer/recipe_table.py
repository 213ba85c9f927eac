"""Facts about the packaged recipes: system, size, lengths, and what each was published for."""

from __future__ import annotations

from typing import Any

from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes, summaries
from trainer.run.memory import count_parameters


def recipes() -> list[dict[str, Any]]:
    """Return facts about each packaged recipe, by name.

    ``recipe``, ``system``, ``layers`` (of the encoder and the decoder), ``width``, ``parameters`` (without rows of
    tokens, which depend on the tokenizer), ``source_length`` and ``target_length`` in tokens, ``updates`` or
    ``epochs``, ``batch_size`` in rows, and ``published``: model, data and paper.
    """
    published = summaries()
    return [
        _facts(name, path.parent.name.removesuffix("_tasks"), published[name]) for name, path in list_recipes().items()
    ]


def _facts(name: str, system: str, published: str) -> dict[str, Any]:
    recipe = load_recipe(name)
    model, data, run = recipe.model, recipe.data, recipe.run
    return {
        "recipe": name,
        "system": system,
        "layers": [model.encoder.layers, model.decoder.layers if model.decoder else 0],
        "width": model.width,
        "parameters": count_parameters(model),
        "source_length": data.source_length,
        "target_length": data.target_length if model.decoder else 0,
        "updates": run.steps,
        "epochs": run.epochs,
        "batch_size": run.batch_size,
        "published": published,
    }
