"""A job as a pipeline of Beam's: its stages one after the other, their tasks spread over the workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from corpora.storage.manifest import Manifest, read_manifest
from pipelines.engine.beam.runner import WorkerDied, run_pipeline
from pipelines.engine.beginning import begin, require_begun
from pipelines.engine.finalize import finalize
from pipelines.engine.job import Job, Task
from pipelines.engine.options import Engine
from pipelines.engine.paths import WORK
from pipelines.engine.progress import ProgressBars, Reporter
from pipelines.engine.tasks import RunTask, explain


def run_stages(job: Job, engine: Engine) -> Manifest:
    """Run or resume a job whose folder this process has locked, and return the manifest."""
    done = begin(job)
    if done is None:
        return read_manifest(job.output)
    work = os.path.join(job.output, WORK)
    if any(task.name not in done for stage in job.stages for task in stage.tasks):
        totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in job.stages}
        widest = max(sum(task.name not in done for task in stage.tasks) for stage in job.stages)
        with ProgressBars(totals) as bars:
            try:
                run_pipeline(
                    lambda pipeline: _build(pipeline, job, done, bars.reporter),
                    engine,
                    engine.worker_count(widest, job.work_bytes),
                )
            except WorkerDied:
                raise
            except Exception as error:
                raise explain(work, error) from error
    require_begun(job.output)
    return finalize(job.output, job.error_budget)


@dataclass(frozen=True)
class _Work:
    """A task on a worker, on whichever machine. ``barrier``: results of the stage before, which only have to exist."""

    run: RunTask

    def __call__(self, task: Task, barrier: Any = None) -> str:
        from pipelines.engine.beam.stores import use_flags_of_pipeline  # it loads Beam

        use_flags_of_pipeline()
        return self.run(task)


def _build(pipeline: Any, job: Job, done: set[str], reporter: Reporter) -> None:
    """Create | Reshuffle | Map for each stage, a stage waiting for the one before by way of a side input."""
    from pipelines.engine.beam.apache import beam

    barrier: list[Any] = []
    for stage in job.stages:
        for task in stage.tasks:
            if task.name in done:
                reporter(stage.name, task.name, task.units)
        work = _Work(RunTask(stage.name, stage.work, job.output, reporter))
        finished = (
            pipeline
            | f"{stage.name}: tasks" >> beam.Create([task for task in stage.tasks if task.name not in done])
            | f"{stage.name}: spread" >> beam.Reshuffle()
            | f"{stage.name}: work" >> beam.Map(work, *barrier)
        )
        barrier = [beam.pvalue.AsIter(finished)]
