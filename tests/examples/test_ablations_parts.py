"""The parts of the ablations: their order, their models, and what a table needs."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.examples.scripts import load_example
from trainer.recipe import load_recipe

module, plan = load_example("ablations_parts"), load_example("ablations_plan")


@pytest.mark.parametrize("scale", [plan.Scale(), plan.QUICK], ids=["whole", "quick"])
def test_every_need_is_made_by_an_earlier_part(tmp_path, scale):
    parts = module.Experiment(tmp_path, scale, (1, 2, 3), 2).parts()
    made = set()
    for part in parts:
        assert set(part.needs) <= made, part.name
        made.add(part.finished)
    assert len(made) == len(parts) == len({part.name for part in parts})


@pytest.mark.parametrize("scale", [plan.Scale(), plan.QUICK], ids=["whole", "quick"])
def test_all_models_are_ones_that_their_patterns_take(tmp_path, scale):
    """With blocks as large as those of the task, and the same model where a run begins with another's weights."""
    parts = module.Experiment(tmp_path, scale, (1, 2, 3), 1).parts()
    models = {}
    for words in (list(map(str, part.run)) for part in parts if not callable(part.run)):
        settings = [word for flag, word in pairwise(words) if flag == "--set"]
        if words[0] == "train":
            recipe = load_recipe(words[1], settings)
            models[recipe.run.directory] = recipe.model
            if recipe.run.initial_model:
                assert models[recipe.run.initial_model] == recipe.model
        elif words[0] == "convert":
            models[words[2]] = load_recipe(words[words.index("--recipe") + 1], settings).model
    assert len(models) > 20


def test_a_table_needs_no_parts_of_the_others(tmp_path):
    parts = module.Experiment(tmp_path, plan.Scale(), (1,), 1).parts()
    names = {part.name for part in parts}
    assert {"block-chains-0", "pooling-wiki-what-0", "predictions of global-wiki-lead-0"} <= names
    assert not {"scorer", "corpus-linked", "corpus-long", "corpus-random"} & names
