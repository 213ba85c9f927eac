"""The README's commands are commands: each is one that the parser takes, and each make target exists."""

import re
import shlex
from pathlib import Path

import pytest

from pipelines.commands import build_parser
from trainer.recipe import load_recipe

ROOT = Path(__file__).parents[1]
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("farspan ")]


def test_every_job_is_shown():
    shown = {
        tuple(line.split()[1:3]) if line.split()[1] in ("corpus", "tokenizer") else (line.split()[1],)
        for line in COMMANDS
    }
    assert shown >= {("tokenizer", "train"), ("documents",), ("corpus", "random"), ("mask",), ("train",)}
    assert shown >= {("show",), ("stats",), ("verify",)}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_parser_takes(command: str):
    options = build_parser().parse_args(shlex.split(command)[1:])
    if options.command == "train":
        load_recipe(options.recipe, options.set)


def test_make_knows_its_targets():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = [line.split()[1] for line in LINES if line.startswith("make ")]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")
