"""The ablations: plan, parts, tables and figure, and a whole run at small size."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from objectives.api.protocol import load_objective
from tests.examples.scripts import EXAMPLES, load_example
from trainer.recipe import load_recipe


@pytest.mark.slow
def test_a_quick_run_goes_on_after_a_kill(tmp_path):
    """About ten minutes of two cores: all tables, one seed."""
    command = [sys.executable, EXAMPLES / "ablations.py", tmp_path, "--quick"]
    first = subprocess.Popen(command, start_new_session=True)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(60)
    os.killpg(first.pid, 9)
    first.wait()
    made = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/manifest.json")}
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert all(f"table {number}," in printed for number in (1, 2, 3))
    assert Path(tmp_path, "ablations.svg").stat().st_size > 10_000


parts, plan, table = load_example("ablations_parts"), load_example("ablations_plan"), load_example("ablations_table")


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


@pytest.mark.parametrize("scale", [plan.Scale(), plan.QUICK], ids=["whole", "quick"])
def test_every_need_is_made_by_an_earlier_part(tmp_path, scale):
    planned = parts.Experiment(tmp_path, scale, (1, 2, 3), 2).parts()
    made = set()
    for part in planned:
        assert set(part.needs) <= made, part.name
        made.add(part.finished)
    assert len(made) == len(planned) == len({part.name for part in planned})


@pytest.mark.parametrize("scale", [plan.Scale(), plan.QUICK], ids=["whole", "quick"])
def test_all_models_are_ones_that_their_patterns_take(tmp_path, scale):
    """With blocks as large as those of the task, and the same model where a run begins with another's weights."""
    planned = parts.Experiment(tmp_path, scale, (1, 2, 3), 1).parts()
    models = {}
    for words in (list(map(str, part.run)) for part in planned if not callable(part.run)):
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
    planned = parts.Experiment(tmp_path, plan.Scale(), (1,), 1).parts()
    names = {part.name for part in planned}
    assert {"block-chains-0", "pooling-wiki-what-0", "predictions of global-wiki-lead-0"} <= names
    assert not {"scorer", "corpus-linked", "corpus-long", "corpus-random"} & names


@pytest.fixture
def experiment(tmp_path):
    return parts.Experiment(tmp_path, plan.Scale(), (1, 2, 3), 3)


def invented(experiment, questions=40):
    """Scores with the mean of each model's place in the experiment, and other noise for each seed."""
    cells = {}
    for model, task, seed in experiment.cells():
        rng = np.random.default_rng([experiment.models.index(model), seed])
        level = 20 + 5 * experiment.models.index(model)
        hops = np.arange(questions) % 2 + 1
        values = level + rng.normal(0, 1, questions) - 10.0 * (hops == 2)
        keys = {"wiki-what": ["f1"], "chains": ["exact_match"]}.get(
            task, ["rouge/rouge1", "rouge/rouge2", "rouge/rougeL"]
        )
        scores = dict.fromkeys(keys, values)
        cells[model, task, seed] = table.Cell(scores, np.arange(questions), hops * (task == "chains"), 5.0 + seed)
    return cells


def test_rows_have_the_score_and_the_loss_of_every_seed(experiment):
    cells = invented(experiment)
    rows = table.rows_of(experiment, cells, 1, "wiki-what", plan.TABLES[1])
    assert [row.label for row in rows] == ["block", "overlap", "global", "pooling"]
    for row in rows:
        assert row.seeds == pytest.approx(
            [cells[row.model, "wiki-what", seed].scores["f1"].mean() for seed in range(3)]
        )
        assert row.losses == [5.0, 6.0, 7.0]


def test_scores_by_hops_and_by_length(experiment):
    cells = invented(experiment)
    (one, two) = table.by_hops(experiment, cells, "chains", plan.Model(attention="block"))
    assert (one[0], two[0]) == (1, 2)
    assert one[1] - two[1] == pytest.approx(10, abs=2)
    lengths = table.by_length(experiment, cells, "wiki-what", plan.Model(attention="block"))
    assert [length for length, _ in lengths] == [4.5, 14.5, 24.5, 34.5]
    assert table.by_hops(experiment, cells, "wiki-what", plan.Model(attention="block")) == []


def test_tables_and_figure(tmp_path, capsys):
    quick = parts.Experiment(tmp_path, plan.QUICK, (1, 2), 1)
    cells = invented(quick)
    table.print_tables(quick, cells)
    printed = capsys.readouterr().out
    assert [line.split(",")[:2] for line in printed.splitlines() if line.startswith("table")] == [
        ["table 2", " wiki-what"],
        ["table 1", " chains"],
    ]
    assert printed.count("2 hops") == 4
    assert printed.count("loss 5.000 (5.000)") == 8
    table.draw(quick, cells, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert all(f">{title}</text>" in text for title in ("table 1: chains, exact_match", "chains over hops"))
