"""The plan of the ablations: recipes and presets that exist, tables that vary one thing at a time."""

from __future__ import annotations

import tomllib

import pytest

from objectives.api.protocol import load_objective
from tests.examples.scripts import load_example
from trainer.recipe import load_recipe

plan = load_example("ablations_plan")


@pytest.mark.parametrize("recipe", plan.RECIPES.values())
def test_the_initialisation_suits_the_width_of_every_recipe(recipe):
    assert plan.INIT_STD["model.init_std"] == pytest.approx(load_recipe(recipe, []).model.width ** -0.5, abs=1e-3)


@pytest.mark.parametrize("label", plan.OBJECTIVES)
def test_objectives_are_installed_presets(label):
    given = tomllib.loads("one = " + plan.OBJECTIVES[label].replace("TARGET", "512"))["one"]
    load_objective(given["name"], given["preset"], given.get("options", {}))


@pytest.mark.parametrize(("number", "varied"), [(1, "attention"), (2, "corpus"), (3, "objective")])
def test_a_table_varies_one_thing(number, varied):
    """In table 3 among the models with long pretraining."""
    models = list(plan.TABLES[number].values())[number == 3 :]
    assert len({getattr(model, varied) for model in models}) == len(models)
    assert len({model._replace(**{varied: ""}) for model in models}) == 1
