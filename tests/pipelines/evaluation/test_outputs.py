"""Outputs that would replace the predictions that are read."""

from __future__ import annotations

import json
import os

import pytest

from corpora.errors import FarspanError
from pipelines.evaluation.outputs import check_outputs


def test_no_input_is_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink("a.json", "link.json")
    for path in ("a.json", "./a.json", str(tmp_path / "a.json"), "link.json", "g/predictions.json", "g/manifest.json"):
        with pytest.raises(FarspanError, match=r"--json: would replace .*, which is read; give another name"):
            check_outputs({"--figure": None, "--json": path}, ["a.json", "g/"])
    check_outputs({"--json": "g/scores.json", "--figure": "predictions.json"}, ["a.json", "g/"])


def test_evaluate_and_submit_keep_their_inputs(made, run, tmp_path):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(dict(zip(made.ids, ["text"] * len(made.ids), strict=True))))
    before = path.read_bytes()
    known = ("--pairs", made.pairs, "--split", "validation", "--metrics", "f1")
    for arguments in (
        ("evaluate", str(path), *known, "--json", str(path)),
        ("submit", f"qasper={path}", "--partial", "--output", str(tmp_path / "answers.csv")),
        ("submit", f"qasper={made.good}", "--partial", "--output", f"{made.good}/predictions.csv"),
    ):
        status, _, errors = run(*arguments)
        assert (status, "would replace" in errors) == (1, True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["answers.json"]
