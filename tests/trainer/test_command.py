"""The commands about recipes: flags, what they hand to the run, and estimates, which read no data."""

import argparse
import subprocess
import sys
from unittest.mock import Mock

import pytest

from corpora.errors import FarspanError
from corpora.options import add_flags
from corpora.settings import make
from trainer.command import run_command, train
from trainer.options import Recipes, Training
from trainer.recipe import load_recipe
from trainer.run.memory import Memory


def test_flags_of_training():
    parser = argparse.ArgumentParser()
    add_flags(parser, Training)
    typed = vars(parser.parse_args(["tiny", "--set", "run.steps=3", "--set", "data.corpus=c", "--estimate", "50"]))
    assert make(Training, typed) == Training(recipe="tiny", assignments=("run.steps=3", "data.corpus=c"), estimate=50)


def test_the_recipe_to_print_may_be_left_out():
    parser = argparse.ArgumentParser()
    add_flags(parser, Recipes)
    assert make(Recipes, vars(parser.parse_args([]))) == Recipes(recipe=None)
    assert make(Recipes, vars(parser.parse_args(["tiny"]))) == Recipes(recipe="tiny")


def test_a_negative_number_of_token_rows_is_refused():
    with pytest.raises(FarspanError, match="--estimate -5: give a number of at least 0"):
        make(Training, {"recipe": "tiny", "estimate": -5})


def test_a_recipe_without_data_needs_the_number_of_token_rows():
    parser = argparse.ArgumentParser()
    add_flags(parser, Training)
    options = make(Training, vars(parser.parse_args(["tiny", "--estimate"])))
    assert options.estimate == 0
    with pytest.raises(FarspanError, match=r"names no data.*as in --estimate 50265"):
        run_command(options)


def test_a_table_of_a_recipe_on_the_command_line(capsys):
    run_command(Training(recipe="tiny", estimate=8000))
    title, head, *rows = capsys.readouterr().out.splitlines()
    rows, (work, *devices, machine) = rows[:9], rows[9:]
    assert "operations in 60 updates of 16,384 source positions" in work
    assert [line.split()[0] for line in devices] == ["A100", "L40S", "H100"]
    assert machine == "this machine: not measured, as the recipe names no data"
    assert "8,000 token rows" in title
    assert head.split()[-1] == "total"
    assert [row.split()[:3] for row in rows] == [
        [size, mode, checkpointing]
        for size, mode in (("1", "ddp"), ("8", "ddp"), ("8", "fsdp"))
        for checkpointing in ("none", "selective", "layer")
    ]
    for row in rows:
        *parts, total = map(float, row.split()[3:])
        assert total == pytest.approx(sum(parts), abs=0.04)


def test_an_estimate_says_what_it_does_before_anything_slow():
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom trainer.command import *\n"
        "run_command(Training(recipe='tiny', estimate=9))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stderr.splitlines()[0].startswith("tiny: measures a step's memory")
    assert "torch" in ended.stderr.splitlines()[-1]  # which it loads next


def test_rows_of_an_estimate_are_printed_as_they_come(capsys, monkeypatch):
    lines = []

    def measured(*_):
        lines.append(capsys.readouterr().out.count("\n"))
        return Memory(1, 1, 1, 1, 1)

    monkeypatch.setattr("trainer.run.memory.step_memory", measured)
    run_command(Training(recipe="tiny", estimate=8000))
    assert lines == [2, *[1] * 8]  # the two lines of the head, then one each


def test_keywords_of_the_function_are_keys_of_the_recipe(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr("trainer.run.train.train", lambda recipe, name: given.append(recipe))
    settings = {"run.steps": 30, "data.corpus": "a b=c", "model.decoder": None, "optimizer.betas": [0.8, 0.9]}
    path = tmp_path / "recipe.toml"
    path.write_text('extends = "tiny"\n')
    for recipe in ("tiny", path):
        train(recipe, settings)
    train("tiny")
    one, other, plain = given
    assert one == other
    assert (one.run.steps, one.data.corpus, one.model.decoder, one.optimizer.betas) == (30, "a b=c", None, (0.8, 0.9))
    assert plain == load_recipe("tiny")


def test_a_wrong_name_is_refused_before_pytorch_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith(("trainer.memory", "trainer.run"))]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(FarspanError, match=r"no recipe 'tine' \(did you mean 'tiny'\?\)"):
        run_command(Training(recipe="tine"))


def test_progress_that_nobody_reads_names_the_cure(monkeypatch):
    monkeypatch.setattr("trainer.run.train.train", Mock(side_effect=BrokenPipeError(32, "Broken pipe")))
    with pytest.raises(
        FarspanError, match=r"has ended .*with its output sent elsewhere, continues from the last checkp"
    ):
        run_command(Training(recipe="tiny"))
