"""docs/datasets.md: its examples run as they stand, and it names every data set and attribute."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from corpora.readers.tasks import DATA_SETS
from pipelines.commands import build_parser
from pipelines.execute import run
from tests.artefacts import all_rows, small_tokenizer

PAGE = (Path(__file__).parents[3] / "docs" / "datasets.md").read_text("utf-8")
RECORDS, COMMANDS = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("json", "sh"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    small_tokenizer().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_all(commands: str) -> None:
    for command in commands.splitlines():
        flags, rest = build_parser().parse_known_args(shlex.split(command)[1:])
        run(flags.chosen, vars(flags), rest)


def test_the_example_runs(folder, capsys):
    (folder / "meetings").mkdir()
    (folder / "meetings" / "train.jsonl").write_text(RECORDS[0])
    run_all(COMMANDS[0])
    assert [row["document_id"].partition(":")[0] for row in all_rows("documents")] == ["qmsum"]
    rows = all_rows("pairs", "farspan.pairs")
    assert [row["references"] for row in rows] == [["Ann asked for a red lamp, and Bob agreed."], ["A red lamp."]]
    assert "2 pairs" in capsys.readouterr().out


def test_the_example_of_own_pairs_runs(folder):
    (folder / "mine").mkdir()
    (folder / "mine" / "a.jsonl").write_text(RECORDS[1])
    run_all(COMMANDS[1])
    (row,) = all_rows("pairs", "farspan.pairs")
    assert row["references"] == ["at noon", "12 o'clock"]


def test_the_page_names_every_data_set():
    section = PAGE.split("## Files, documents and pairs of each format")[1].split("\n## ")[0]
    table = set(re.findall(r"^\| `([a-z][a-z-]+)` \|", section, re.MULTILINE))
    assert table == set(DATA_SETS)
