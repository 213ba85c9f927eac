"""A job as a pipeline: the order of its tasks, and its progress when it is resumed."""

from __future__ import annotations

import json

import apache_beam as beam
import pytest

from corpora.compiled import Kernel
from corpora.errors import FarspanError
from corpora.keyed import philox_blocks
from corpora.packing.concatenate import greedy_parts
from corpora.packing.options import Packing
from corpora.storage.ragged import _copy_pieces
from corpora.text.sentences import _token_starts
from objectives.draws.compositions import draw_spans
from pipelines.corpus.options import RandomCorpus
from pipelines.corpus.random import plan as plan_corpus
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan as plan_documents
from pipelines.documents.options import Documents
from pipelines.engine.beam import pipeline
from pipelines.engine.beam.remote.signs import Sign
from pipelines.engine.beam.remote.submission import Submission, read_submission
from pipelines.engine.beginning import begin
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.progress import Reporter
from pipelines.engine.run import run_job
from pipelines.masks.job import plan as plan_masks
from pipelines.masks.options import Masking
from tests.artefacts import digests, small_tokenizer
from tests.pipelines.engine.test_run import job, work


def test_the_largest_tasks_come_first(monkeypatch):
    created = []
    monkeypatch.setattr(beam, "Create", lambda tasks: created.append([task.name for task in tasks]) or beam.Impulse())
    sizes = {"a": 3, "b": 9, "c": 1, "d": 9, "done": 50}
    stage = Stage("s", [Task(name, {}, units) for name, units in sizes.items()], work, "units")
    one = job("out", "a")
    pipeline._build(beam.Pipeline(), Job(**{**vars(one), "stages": [stage]}), {"done"}, Reporter(0))
    assert created == [["b", "d", "a", "c"]]


@pytest.fixture
def plainly(monkeypatch):
    """Small kernels run as plain Python, as in a process that has just begun."""
    for kernel in (philox_blocks, draw_spans, greedy_parts, _copy_pieces, _token_starts):
        monkeypatch.setattr(kernel, "_compiled", None)
    monkeypatch.setattr(Kernel, "plain_left", 1 << 20)


def artefacts(folder, engine):
    """Digests of documents, a corpus and masks that an engine made."""
    raw = folder.parent / "raw"
    raw.mkdir(exist_ok=True)
    for name, count in (("a", 9), ("b", 5)):
        texts = [f"Text {name}{i} tells of the number {i}. It is — not “long”. " * (i + 1) for i in range(count)]
        (raw / f"{name}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenizer = str(folder.parent / "tokenizer")
    small_tokenizer().save(tokenizer)
    documents, corpus, masks = (str(folder / name) for name in ("documents", "corpus", "masks"))
    inputs = (Input.parse(f"raw={raw}"),)
    run_job(plan_documents(Documents(inputs=inputs, tokenizer=tokenizer, output=documents, task_bytes=500)), engine)
    packing = Packing(sequence_length=64)
    run_job(plan_corpus(RandomCorpus(documents=documents, output=corpus, packing=packing, shards=2)), engine)
    run_job(plan_masks(Masking(corpus=corpus, output=masks, objective="span", preset="t5")), engine)
    return digests(documents), digests(corpus), digests(masks)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_job_gives_the_same_bytes_in_this_process_and_on_beam(tmp_path, request, workers):
    beamed = artefacts(tmp_path / "beam", Engine(engine="beam", workers=workers))
    request.getfixturevalue("plainly")
    assert artefacts(tmp_path / "here", Engine()) == beamed
    assert draw_spans._compiled is None


def test_a_job_left_with_an_engine_is_settled_by_whichever_comes_next(tmp_path, monkeypatch):
    one = job(tmp_path, "fine")
    begin(one)
    submission = Submission("DataflowRunner", "a")
    submission.write(str(tmp_path))
    monkeypatch.setattr("pipelines.engine.beam.remote.earlier.BEAT_SECONDS", 0.01)
    monkeypatch.setattr("pipelines.engine.beam.remote.earlier._at_work", alive := Alive(submission))
    with pytest.raises(FarspanError, match="still works here: host:7"):
        run_job(one, Engine(workers=1))
    alive.dead = True
    assert run_job(one, Engine(workers=1)).totals == {"documents": 0, "tokens": 0}
    assert read_submission(str(tmp_path)) is None


class Alive:
    """A worker that beats until it is dead."""

    def __init__(self, submission: Submission) -> None:
        self.submission, self.beat, self.dead = submission, 0, False

    def __call__(self, *_) -> dict[str, Sign]:
        self.beat += not self.dead
        return {"w": Sign("host:7", self.submission.attempt, self.beat, {"fine": ("fine", 0)})}
