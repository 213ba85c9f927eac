"""Jobs without Beam: the tasks of each process, what is resumed, and what a failing task leaves."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.presence.lock import locked
from pipelines.engine.ranks import run_job_on_ranks
from tests.trainer.distributed_ranks import on_ranks
from trainer.parallel.distributed import World

TOKENIZER = {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}


class Work:
    """Writes who did a task; the tasks of the second stage see those of the first."""

    def __init__(self, output, rank=0, failing=""):
        self.output, self.rank, self.failing = output, rank, failing

    def __call__(self, task, report):
        if task.name == self.failing:
            raise FarspanError("row 3: not a number; mend it")
        before = sorted(path.name for path in Path(self.output, "did").glob("*"))
        Path(self.output, "did").mkdir(exist_ok=True)
        Path(self.output, "did", task.name).write_text(json.dumps([self.rank, os.getpid(), before]))
        report(1)
        return Receipt(task.name, totals={"documents": 1, "tokens": 2})


def job_of(output, rank=0, failing="", split="train"):
    work = Work(str(output), rank, failing)
    stages = [
        Stage("first", [Task(f"first-{number}", {}, 1) for number in range(5)], work, "tasks"),
        Stage("last", [Task("last-0", {}, 1)], work, "tasks"),
    ]
    return Job(str(output), Manifest("farspan.neighbours", {"split": split}, 0, 64, TOKENIZER), stages, os.makedirs, 0)


def did(output):
    """Rank and predecessors of each task."""
    return {path.name: json.loads(path.read_text())[::2] for path in sorted(Path(output, "did").iterdir())}


def on_rank(world, output):
    return run_job_on_ranks(job_of(output, world.rank), world).totals


def test_ranks_take_tasks_in_turn_and_stages_wait(tmp_path):
    totals = on_ranks(3, on_rank, tmp_path)
    assert totals == [{"documents": 6, "tokens": 12}] * 3
    ranks = {name: rank for name, (rank, _) in did(tmp_path).items()}
    assert ranks == {"first-0": 0, "first-1": 1, "first-2": 2, "first-3": 0, "first-4": 1, "last-0": 0}
    assert did(tmp_path)["last-0"][1] == [f"first-{number}" for number in range(5)]
    assert not (tmp_path / "_work").exists()


def test_a_failed_task_leaves_the_others_and_is_repeated_alone(tmp_path, capsys):
    output = tmp_path / "job"
    with pytest.raises(FarspanError, match="row 3: not a number; mend it"):
        run_job_on_ranks(job_of(output, failing="first-2"), World.alone())
    assert sorted(did(output)) == ["first-0", "first-1"]
    with pytest.raises(FarspanError, match=r"config.split was 'train', is 'held-out'"):
        run_job_on_ranks(job_of(output, split="held-out"), World.alone())
    (output / "tokenizer").rmdir()
    run_job_on_ranks(job_of(output, rank=7), World.alone())
    assert "resuming: 2 of 6 tasks are done" in capsys.readouterr().err
    assert [rank for rank, _ in did(output).values()] == [0, 0, 7, 7, 7, 7]
    before = read_manifest(str(output))
    assert run_job_on_ranks(job_of(output, rank=9), World.alone()) == before
    assert [rank for rank, _ in did(output).values()] == [0, 0, 7, 7, 7, 7]


def test_a_second_job_in_the_folder_is_refused(tmp_path):
    with locked(str(tmp_path)), ThreadPoolExecutor(1) as other:
        second = other.submit(run_job_on_ranks, job_of(tmp_path), World.alone())
        with pytest.raises(FarspanError, match="another farspan job works here"):
            second.result()
