"""``farspan evaluate`` and ``farspan submit`` as they are typed."""

from __future__ import annotations

import shlex

import pytest

from pipelines.commands import build_parser
from pipelines.commands.evaluation import COMMANDS

EXAMPLES = [
    line.strip()
    for command in COMMANDS
    for line in (command.epilog or "").splitlines()
    if line.strip().startswith("farspan ")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_of_the_help_are_commands(example):
    _, rest = build_parser().parse_known_args(shlex.split(example)[1:])
    assert rest == []


@pytest.mark.parametrize("name", ["evaluate", "submit"])
def test_predictions_that_are_not_there_are_named(run, tmp_path, name):
    options = ["--metrics", "f1"] if name == "evaluate" else ["--output", tmp_path / "s.csv"]
    status, out, err = run(name, tmp_path / "nothing", *options)
    assert (status, out) == (1, "")
    assert str(tmp_path / "nothing") in err
    assert len(err.splitlines()) == 1
