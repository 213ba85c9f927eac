"""Running a job without Beam: each process of ``torchrun`` does every n-th task; a single process does all.

For jobs whose tasks share a model on a device, which is loaded once per process. Tasks, receipts and manifest are those
of any job, so a stopped job is resumed with any number of processes.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial

import torch.distributed as dist

from corpora.errors import FarspanError, from_os_error
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import read_manifest
from pipelines.engine.beginning import begin, require_begun
from pipelines.engine.finalize import finalize
from pipelines.engine.job import REPEAT, Job
from pipelines.engine.presence.lock import locked
from pipelines.engine.progress import ProgressBars, Reporter
from pipelines.engine.tasks import perform
from trainer.parallel.distributed import World, run_together

_PATIENCE = timedelta(days=7)  # for a process whose last tasks take longer than those of the others


def run_job_on_ranks(job: Job, world: World) -> Manifest:
    """Run or resume a job and return the manifest; a finished artefact is left as it is.

    All processes call this together, with equal jobs. Only rank 0 locks the folder, writes the manifest, and shows the
    progress of the processes on its machine.

    Raises:
        FarspanError: the folder holds something else, another process works on it, or a task failed.
    """
    patient = world if world.control is None else replace(world, control=dist.new_group(timeout=_PATIENCE))
    with ExitStack() as stack:
        try:
            if world.first:
                stack.enter_context(locked(job.output))
            (done, *_) = run_together(patient, lambda: _begin(job, world))
            if done is not None:
                _run_stages(job, set(done), patient, stack)
            run_together(patient, lambda: _finish(job, world))
        except OSError as error:
            if cured := from_os_error(error, job.output):
                raise FarspanError(f"{cured}; {REPEAT}") from error
            raise
    return read_manifest(job.output)


def _begin(job: Job, world: World) -> list[str] | None:
    """The finished tasks, on rank 0; None if the artefact is finished."""
    done = begin(job) if world.first else None
    return None if done is None else sorted(done)


def _run_stages(job: Job, done: set[str], world: World, stack: ExitStack) -> None:
    """Do this rank's share of the unfinished tasks; a stage waits for the one before it."""
    totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in job.stages}
    bars = stack.enter_context(ProgressBars(totals)) if world.first else None
    (port, *_) = world.gather(bars.reporter.port if bars else 0)
    report = Reporter(port)
    for stage in job.stages:
        for task in stage.tasks:
            if bars and task.name in done:
                bars.restored(stage.name, task.name, task.units)
        for task in [task for task in stage.tasks if task.name not in done][world.rank :: world.size]:
            made = perform(task, stage.work, job.output, partial(report, stage.name, task.name))
            report(stage.name, task.name, task.units, sum(made.rejects.values()) if made else 0)
        world.barrier()


def _finish(job: Job, world: World) -> None:
    if world.first and not os.path.exists(os.path.join(job.output, "manifest.json")):
        require_begun(job.output)
        finalize(job.output, job.error_budget)
