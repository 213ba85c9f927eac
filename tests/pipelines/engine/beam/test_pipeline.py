"""A job as a pipeline: the order of its tasks, and its progress when it is resumed."""

import json
import time
from dataclasses import replace
from pathlib import Path

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
from pipelines.engine.beam.engine import BeamEngine
from pipelines.engine.beam.pipeline import Watch, Work
from pipelines.engine.claims import lock_folder, lock_of
from pipelines.engine.folder import begin
from pipelines.engine.job import Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.progress import ProgressBars
from pipelines.engine.run import run_job
from pipelines.engine.tasks import RunTask
from pipelines.masks.job import plan as plan_masks
from pipelines.masks.options import Masking
from tests.artefacts import digests, small_tokenizer
from tests.pipelines.engine.test_run import job, work


def test_the_largest_tasks_come_first(tmp_path, monkeypatch):
    created = []
    monkeypatch.setattr(BeamEngine, "run", lambda engine, tasks, *_: created.append([task.name for task in tasks]))
    sizes = {"a": 3, "b": 9, "c": 1, "d": 9, "done": 50}
    one = replace(job(tmp_path, "a"), stages=[Stage("s", [Task(n, {}, u) for n, u in sizes.items()], work, "units")])
    with lock_folder(str(tmp_path)):
        pipeline.run_on_beam(one, Engine(engine="beam"), {"done"}, ProgressBars(one.stages))
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


def test_a_job_gives_the_same_bytes_in_this_process_and_on_beam(tmp_path, request):
    beamed = artefacts(tmp_path / "beam", Engine(engine="beam"))
    request.getfixturevalue("plainly")
    assert artefacts(tmp_path / "here", Engine()) == beamed
    assert vars(draw_spans)["_compiled"] is None


@pytest.fixture
def on_worker(tmp_path):
    """Makes what a worker does of a task of a job that this process holds."""
    one = job(tmp_path, "fine", "input")
    with lock_folder(str(tmp_path)):
        begin(one)
        yield lambda **changes: replace(
            Work(RunTask("fine", work, str(tmp_path)), lock_of(str(tmp_path)), ()), **changes
        )


FINE, INPUT = Task("fine", {}, 1), Task("input", {}, 1)


def test_a_worker_says_that_it_has_begun_and_why_it_failed(on_worker, tmp_path):
    assert on_worker()(FINE) == "fine"
    with pytest.raises(FarspanError, match="row 3: not a number; mend it"):
        on_worker()(INPUT)
    assert (tmp_path / "_work" / "begun").exists()
    watch = Watch(str(tmp_path), Stage("s", [FINE, INPUT], work, "tasks"), [FINE, INPUT], bars(), 60)
    with pytest.raises(FarspanError, match=r"^task input failed: row 3: not a number; mend it\nfinished tasks"):
        watch.look("")
    assert str(watch.explain(RuntimeError("x"))).startswith("task input failed: row 3")


def bars() -> ProgressBars:
    return ProgressBars([Stage("s", [FINE, INPUT], work, "tasks")])


def test_a_worker_with_other_versions_refuses_and_the_driver_says_why(on_worker, tmp_path):
    with pytest.raises(FarspanError, match=r"and the driver farspan 9 under Python 2\.7; install the same on both"):
        on_worker(versions=("9", "2.7"))(FINE)
    watch = Watch(str(tmp_path), Stage("s", [FINE], work, "tasks"), [FINE], bars(), 60)
    with pytest.raises(FarspanError, match="install the same on both"):
        watch.look("")
    assert not (tmp_path / "_work" / "fine.json").exists()


def test_a_worker_whose_driver_was_followed_by_another_stops(on_worker, tmp_path):
    path, contents = lock_of(str(tmp_path))
    work_of_old = on_worker()
    Path(path).rename(tmp_path / "aside")
    with pytest.raises(FarspanError, match="this job was cancelled, or begun again; its workers stop"):
        work_of_old(FINE)
    Path(path).write_bytes(b"another driver")
    with pytest.raises(FarspanError, match="its workers stop"):
        work_of_old(FINE)
    Path(path).write_bytes(contents)
    assert work_of_old(FINE) == "fine"


@pytest.mark.parametrize("begun", [False, True])
def test_one_line_says_that_nothing_has_begun(tmp_path, capsys, begun):
    (tmp_path / "_work").mkdir()
    if begun:
        (tmp_path / "_work" / "begun").touch()
    watch = Watch(str(tmp_path), Stage("s", [FINE], work, "tasks"), [FINE], bars(), 0.01)
    time.sleep(0.05)
    assert not watch.look("no slot is free")
    watch.look("no slot is free")
    lines = capsys.readouterr().err.splitlines()
    said = "no task has begun for 0 s: no slot is free. See its and its workers' logs"
    assert [line[: len(said)] for line in lines] == [said] * (not begun)
