"""A job as a pipeline: the order of its tasks, and its progress when it is resumed."""

from __future__ import annotations

import apache_beam as beam
import pytest

from corpora.errors import FarspanError
from pipelines.engine.beam import pipeline
from pipelines.engine.beam.remote.signs import Sign
from pipelines.engine.beam.remote.submission import Submission, read_submission
from pipelines.engine.beginning import begin
from pipelines.engine.job import Job, Stage, Task, run_job
from pipelines.engine.options import Engine
from pipelines.engine.progress import Reporter
from tests.pipelines.engine.test_job import job, work


def test_the_largest_tasks_come_first(monkeypatch):
    created = []
    monkeypatch.setattr(beam, "Create", lambda tasks: created.append([task.name for task in tasks]) or beam.Impulse())
    sizes = {"a": 3, "b": 9, "c": 1, "d": 9, "done": 50}
    stage = Stage("s", [Task(name, {}, units) for name, units in sizes.items()], work, "units")
    one = job("out", "a")
    pipeline._build(beam.Pipeline(), Job(**{**vars(one), "stages": [stage]}), {"done"}, Reporter(0))
    assert created == [["b", "d", "a", "c"]]


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
