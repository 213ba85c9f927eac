"""The tutorial of docs/finetuning.md: its data, recipes and commands, run in order."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.commands import build_parser
from trainer.recipe import load_recipe

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "finetuning.md").read_text("utf-8")
TUTORIAL, REST = PAGE.split("\n## At full size\n")


def blocks(kind: str, text: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)


def commands(text: str) -> list[str]:
    return [line for block in blocks("sh", text) for line in block.splitlines() if line.startswith("farspan ")]


DATA = blocks("python", TUTORIAL)[0]
MODEL, ANSWERS = blocks("toml", TUTORIAL)


def follow(folder: Path, data: str, model: str, answers: str, monkeypatch) -> dict:
    """Do what the tutorial says in ``folder``; returns the table of its evaluation."""
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)
    monkeypatch.chdir(folder)
    (folder / "model.toml").write_text(model)
    (folder / "answers.toml").write_text(answers)
    exec(data, {})
    for command in commands(TUTORIAL):
        main(shlex.split(command)[1:])
    return json.loads((folder / "scores.json").read_text("utf-8"))


def test_the_tutorial_runs_with_less_data_and_few_updates(tmp_path, monkeypatch):
    few = re.compile(r"^steps = \d+", re.MULTILINE)
    model = few.sub("steps = 2", MODEL) + "\n[schedule]\nwarmup_steps = 1\n"
    answers = re.sub(r"^every = \d+", "every = 1", few.sub("steps = 2", ANSWERS), flags=re.MULTILINE)
    table = follow(tmp_path, DATA.replace("range(100)", "range(25)"), model, answers, monkeypatch)
    assert [system["name"] for system in table["systems"]] == ["answers", "blind-answers"]
    assert [group["name"] for group in table["groups"]["kind"]] == ["where", "who"]
    assert (tmp_path / "scores.svg").stat().st_size > 10_000
    lines = (tmp_path / "answers.csv").read_text("utf-8").splitlines()
    assert lines[0] == "Task,ID,Prediction"
    assert len(lines) == 1 + table["examples"] > 8


@pytest.mark.slow
def test_the_tutorial_runs_as_it_stands(tmp_path, monkeypatch):
    table = follow(tmp_path, DATA, MODEL, ANSWERS, monkeypatch)
    seeing, blind = (system["scores"]["f1"]["value"] for system in table["systems"])
    assert table["systems"][1]["differences"]["f1"]["high"] < 0, (seeing, blind)


@pytest.mark.parametrize("command", commands(REST))
def test_the_parser_takes_the_other_commands(command):
    options = build_parser().parse_args(shlex.split(command)[1:])
    if options.command == "train":
        load_recipe(options.recipe, options.set)


def test_pictures_are_there():
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 2
    for picture in pictures:
        assert (ROOT / "docs" / picture).stat().st_size > 10_000
