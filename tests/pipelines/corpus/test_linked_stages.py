"""The stages of ``farspan corpus linked``: which are planned, and that nothing is planned too early."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from pipelines.corpus.linked_stages import jobs
from pipelines.corpus.options import EarlierStages, LinkedCorpus
from pipelines.retrieval.options import Embedding
from tests.artefacts import make_documents
from tests.tiny_encoder import make_encoder


def options(folder: Path, **given) -> LinkedCorpus:
    documents = make_documents(str(folder / "documents"))
    return LinkedCorpus(
        documents=documents, output=str(folder / "corpus"), packing=Packing(sequence_length=256), **given
    )


def test_given_neighbours_leave_one_job_and_their_absence_begins_with_vectors(tmp_path):
    with pytest.raises(FarspanError, match="nowhere"):
        next(jobs(options(tmp_path, neighbours=str(tmp_path / "nowhere"))))
    few = EarlierStages(embedding=Embedding(min_document_tokens=10**6))
    with pytest.raises(FarspanError, match="--min-document-tokens 1000000: the longest document"):
        next(jobs(options(tmp_path, earlier=few)))


def test_stages_lie_beside_the_corpus_unless_they_have_a_folder(tmp_path):
    assert options(tmp_path).neighbours_folder == f"{tmp_path}/corpus.stages/neighbours"
    assert options(tmp_path, earlier=EarlierStages(stages="s")).neighbours_folder == "s/neighbours"


def test_an_option_of_a_stage_that_does_not_run_is_refused(tmp_path):
    stages = EarlierStages(embedding=Embedding(block=1024))
    with pytest.raises(FarspanError, match="--block: has no effect with --neighbours; give one of the two"):
        options(tmp_path, neighbours="n", earlier=stages)
    assert options(tmp_path, neighbours="n", earlier=EarlierStages()).neighbours_folder == "n"


def test_an_output_that_holds_something_else_is_seen_first(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.txt").write_text("mine")
    with pytest.raises(FarspanError, match="not empty and no farspan artefact"):
        next(jobs(options(tmp_path)))


@pytest.mark.parametrize(
    ("further", "message"),
    [
        (("--centroids", 2, "--min-document-tokens", 100), "--centroids 2: k-means has 12 vectors to learn from"),
        (("--centroids", 2, "--memory", 0.03), "--memory 31 MiB: 100 neighbours of each document in a cluster of 48"),
        (("--min-document-tokens", 119), "--min-document-tokens 119: no document of split held-out"),
    ],
)
def test_what_late_stages_would_refuse_is_known_before_the_first(run, tmp_path, further, message):
    """It follows from the number of documents that get a vector."""
    documents = make_documents(str(tmp_path / "documents"))
    encoder = make_encoder(str(tmp_path / "tiny"))
    split = ("--split", "held-out") if "held-out" in message else ()
    command = ["corpus", "linked", "--documents", documents, "--encoder", encoder, "--sequence-length", "256"]
    status, _, err = run(*command, "--output", tmp_path / "corpus", *further, *split)
    assert status == 1
    assert err.splitlines()[-1].startswith(f"farspan: {message}")
    assert sorted(os.listdir(tmp_path)) == ["documents", "tiny"]


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
