"""``farspan corpus linked`` as it is typed: late stages are checked before the first."""

from __future__ import annotations

import os

import pytest

from tests.artefacts import make_documents
from tests.tiny_encoder import make_encoder


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--k", 0, "--k 0: give a number of at least 1"),
        ("--probes", 0, "--probes 0"),
        ("--memory", 0, "--memory 0: give a positive number of GiB"),
        ("--iterations", 0, "--iterations 0"),
        ("--max-documents", 0, "--max-documents 0"),
        ("--centroids", 400, "--centroids 400: k-means has 96 vectors to learn from"),
        ("--shards", -1, "--shards -1"),
        ("--max-uses", 0, "--max-uses 0"),
        ("--block", 0, "--block 0"),
        ("--max-length", 1, "--max-length 1: the 2 special tokens of encoder tiny leave no room"),
    ],
)
def test_options_of_late_stages_are_refused_before_the_first(run, capsys, tmp_path, flag, value, message):
    documents = make_documents(str(tmp_path / "documents"))
    encoder = make_encoder(str(tmp_path / "tiny"))
    capsys.readouterr()  # what transformers says about saving
    command = ["corpus", "linked", "--documents", documents, "--encoder", encoder, "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus", flag, value)
    assert (status, len(err.splitlines())) == (1, 1)
    assert err.startswith(f"farspan: {message}")
    assert sorted(os.listdir(tmp_path)) == ["documents", "tiny"]


def test_an_output_that_holds_something_else_is_seen_before_the_first_stage(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.txt").write_text("mine")
    command = ["corpus", "linked", "--documents", documents, "--encoder", "nowhere", "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus")
    assert status == 1
    assert "corpus: not empty and no farspan artefact" in err
