"""A job as a pipeline of Beam: its stages one after the other, with tasks distributed over the workers.

A job on this machine needs no pipeline, and Beam is not imported: one process does the tasks in a plain loop, several
share them (``pipelines/engine/cooperative/local.py``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from corpora.storage import files
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.beam.remote.signs import SignOfLife
from pipelines.engine.beam.remote.submission import read_submission
from pipelines.engine.beam.runner import EngineStopped, run_pipeline
from pipelines.engine.beginning import begin, require_begun
from pipelines.engine.finalize import finalize
from pipelines.engine.job import Job, Task
from pipelines.engine.options import EMBEDDED, Engine
from pipelines.engine.paths import WORK
from pipelines.engine.progress import ProgressBars, Reporter
from pipelines.engine.tasks import RunTask, explain


def run_stages(job: Job, engine: Engine) -> Manifest:
    """Run or resume a job whose folder this process has locked, and return the manifest."""
    elsewhere = engine.runner != EMBEDDED
    if engine.engine == "beam":  # a missing package is an error before work begins
        from pipelines.engine.beam.apache import beam  # noqa: F401
    if elsewhere:
        from pipelines.engine.beam.remote.run import require_shared

        require_shared(engine, job.output)
    if read_submission(job.output):
        from pipelines.engine.beam.remote.earlier import settle

        settle(job, engine)
    done = begin(job)
    if done is None:
        return read_manifest(job.output)
    if any(task.name not in done for stage in job.stages for task in stage.tasks):
        totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in job.stages}
        with ProgressBars(totals) as bars:
            for stage in job.stages:
                for task in stage.tasks:
                    if task.name in done:
                        bars.restored(stage.name, task.name, task.units)
            try:
                (_run_elsewhere if elsewhere else _run_here)(job, engine, done, bars)
            except EngineStopped:
                raise
            except Exception as error:
                require_begun(job.output)
                raise explain(os.path.join(job.output, WORK), error) from error
    require_begun(job.output)
    return finalize(job.output, job.error_budget)


def _run_here(job: Job, engine: Engine, done: set[str], bars: ProgressBars) -> None:
    widest = max(sum(task.name not in done for task in stage.tasks) for stage in job.stages)
    workers = engine.worker_count(widest, job.work_bytes)
    if engine.stays_here(workers):
        _run_alone(job, done, bars)
    elif engine.needs_beam() or not files.is_local(job.output):
        run_pipeline(lambda pipeline: _build(pipeline, job, done, bars.reporter), engine, workers)
    else:
        from pipelines.engine.cooperative.local import share

        share(job, done, bars.reporter, workers, engine.lease)


def _run_alone(job: Job, done: set[str], bars: ProgressBars) -> None:
    """Do all tasks in this thread."""
    for stage in job.stages:
        run = RunTask(stage.name, stage.work, job.output, bars.received)
        for task in stage.tasks:
            if task.name not in done:
                run(task)


def _run_elsewhere(job: Job, engine: Engine, done: set[str], bars: ProgressBars) -> None:
    from pipelines.engine.beam.remote.run import run_elsewhere

    run_elsewhere(lambda pipeline, sign: _build(pipeline, job, done, sign), engine, job, bars)


@dataclass(frozen=True)
class _Work:
    """A task on a worker of any machine. ``barrier``: results of the previous stage, which only have to exist."""

    run: RunTask
    reporter: Reporter | SignOfLife

    def __call__(self, task: Task, barrier: Any = None) -> str:
        from pipelines.engine.beam.stores import use_flags_of_pipeline  # imports Beam

        use_flags_of_pipeline()
        with self.reporter.working(self.run.stage, task.name):
            return self.run(task)


def _build(pipeline: Any, job: Job, done: set[str], reporter: Reporter | SignOfLife) -> None:
    """Create | Reshuffle | Map for each stage, a stage waiting for the one before by way of a side input.

    Engines assign a stage's tasks in their order, so the largest come first.
    """
    from pipelines.engine.beam.apache import beam

    barrier: list[Any] = []
    for stage in job.stages:
        tasks = sorted((task for task in stage.tasks if task.name not in done), key=lambda task: -task.units)
        work = _Work(RunTask(stage.name, stage.work, job.output, reporter), reporter)
        finished = (
            pipeline
            | f"{stage.name}: tasks" >> beam.Create(tasks)
            | f"{stage.name}: spread" >> beam.Reshuffle()
            | f"{stage.name}: work" >> beam.Map(work, *barrier)
        )
        barrier = [beam.pvalue.AsIter(finished)]
