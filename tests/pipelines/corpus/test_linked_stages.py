"""The stages of ``farspan corpus linked``: which are planned, and that nothing is planned too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from pipelines.corpus.linked_stages import jobs
from pipelines.corpus.options import EarlierStages, LinkedCorpus
from pipelines.retrieval.options import Embedding
from tests.artefacts import make_documents


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
    assert options(tmp_path).found_neighbours == f"{tmp_path}/corpus.stages/neighbours"
    assert options(tmp_path, earlier=EarlierStages(stages="s")).found_neighbours == "s/neighbours"


def test_an_option_of_a_stage_that_does_not_run_is_refused(tmp_path):
    stages = EarlierStages(embedding=Embedding(block=1024))
    with pytest.raises(FarspanError, match="--block: has no effect with --neighbours; give one of the two"):
        options(tmp_path, neighbours="n", earlier=stages)
    assert options(tmp_path, neighbours="n", earlier=EarlierStages()).found_neighbours == "n"


def test_an_output_that_holds_something_else_is_seen_first(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "mine.txt").write_text("mine")
    with pytest.raises(FarspanError, match="not empty and no farspan artefact"):
        next(jobs(options(tmp_path)))
