"""The commands and the Python of docs/evaluation.md, run as they stand, on small artefacts with the page's names."""

from __future__ import annotations

import json
import re
import shlex
import sys
from glob import glob
from pathlib import Path

import pytest

from objectives.metrics.flavours import FLAVOURS, SCROLLS, known_metrics
from pipelines.cli import main
from tests.artefacts import make_documents, make_pairs, make_predictions

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "evaluation.md").read_text("utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The artefacts that the page names: pairs, two systems, a JSON file, and one folder for each task of SCROLLS."""
    root = tmp_path_factory.mktemp("evaluation-page")
    documents = make_documents(str(root / "documents"))
    attributes = [{"hard": True}, {"hard": False}]
    pairs = make_pairs(str(root / "pairs"), documents, 60, options=4, attributes=attributes)
    make_predictions(str(root / "block"), pairs)
    make_predictions(str(root / "pooling"), pairs, texts=["a word"] * 20)
    (root / "other.json").write_text(json.dumps({f"pair-{n}": "text" for n in range(2, 60, 3)}))
    (root / "qasper.json").write_text(json.dumps({"a question": "an answer"}))
    for task in SCROLLS:
        own = make_pairs(str(root / "of" / task), documents, 3, splits=["test"], attributes=[{"subset": task}])
        make_predictions(str(root / "submission" / task), own, "test")
    return root


def test_the_page_has_commands():
    assert {command.split()[1] for command in COMMANDS} == {"evaluate", "submit"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_runs(folder, command, monkeypatch):
    monkeypatch.setattr("pipelines.cli.leave", sys.exit)
    monkeypatch.chdir(folder)
    words = [part for word in shlex.split(command)[1:] for part in (sorted(glob(word)) if "*" in word else [word])]
    main(words)
    named = [word for word in words if word.endswith((".csv", ".svg")) or word == "systems.json"]
    assert all((folder / name).stat().st_size for name in named)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_a_block_runs(folder, block, monkeypatch):
    monkeypatch.chdir(folder)
    exec(block, {})


def test_every_metric_is_in_the_tables():
    named = set(re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE))
    assert named >= set(FLAVOURS)
    assert all(f"`{name.removeprefix('scrolls:').removeprefix('rouge:')}`" in PAGE for name in known_metrics())
