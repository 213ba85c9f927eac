"""What runs keep about themselves."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

from rich.console import Console

from tests.trainer.toy import ToySource, toy_recipe
from trainer.model.build import build_model
from trainer.run.logs import model_summary, read_lines
from trainer.run.train import train


def start(recipe, **options):
    return train(recipe, source=ToySource(), console=Console(file=StringIO()), **options)


def test_starts_and_the_summary_of_a_finished_run(tmp_path: Path):
    recipe = toy_recipe(tmp_path, steps=6)
    start(recipe, until=2, name="toy")
    assert not (tmp_path / "summary.json").exists()
    start(recipe)
    first, second = read_lines(tmp_path / "starts.jsonl")
    assert (first["recipe"], first["step"], first["steps"], first["processes"]) == ("toy", 0, 6, 1)
    assert second["step"] == 2
    assert {"farspan", "python", "torch"} <= first["versions"].keys()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["memory_gib"]["expected"] > 0
    assert summary["memory_gib"]["measured"] > 0


def test_parameters_by_part_add_up():
    recipe = toy_recipe("unused")
    model = build_model(recipe.model, 25, 0)
    found = model_summary(recipe, model, 25)["parameters"]
    assert found["total"] == sum(parameter.numel() for parameter in model.parameters())
    assert found["total"] == sum(number for name, number in found.items() if name != "total")
    assert found["tokens"] == 25 * recipe.model.width


def test_broken_lines_are_left_out(tmp_path: Path):
    (tmp_path / "lines").write_text('{"a": 1}\n[2]\n{"b": \n{"c": 3}\n{"d"')
    assert list(read_lines(tmp_path / "lines")) == [{"a": 1}, {"c": 3}]
    assert list(read_lines(tmp_path / "none")) == []
