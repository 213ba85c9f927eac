"""A job: stages of independent file-level tasks that end in one artefact.

Data stays in files. A task writes its output under a temporary name, renames it, then writes a receipt to ``_work/``;
the manifest is a fold over the receipts. So a killed job can be resumed, and a task may run twice.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from corpora.errors import FarspanError, from_os_error
from corpora.storage import files
from corpora.storage.files import read_bytes, sweep, write_bytes
from corpora.storage.manifest import (
    NAME,
    Manifest,
    Receipt,
    json_bytes,
    read_manifest,
)
from pipelines.engine.beam.runner import Engine, WorkerDied, run_pipeline
from pipelines.engine.finalize import WORK, finalize, read_start
from pipelines.engine.lock import locked
from pipelines.engine.progress import ProgressBars, Reporter

_MEND = "finished tasks are kept; the others stop there again until that is mended"
_TOLD = "farspan says: "  # prefix of a task's message to the driver, in its exception
REPEAT = "finished tasks are kept: run the same command again to resume"
Report = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """A unit of work, sent to a worker. ``units`` is its size in the stage's unit."""

    name: str
    payload: Mapping[str, Any]
    units: int


@dataclass(frozen=True)
class Stage:
    """Tasks that are independent of each other.

    Attributes:
        work: picklable; called with a task and a function that reports the units done so far.
        unit: unit of ``Task.units``.
    """

    name: str
    tasks: Sequence[Task]
    work: Callable[[Task, Report], Receipt]
    unit: str


@dataclass(frozen=True)
class Job:
    """Declaration of the job that makes an artefact.

    Attributes:
        output: its folder.
        head: its manifest, without the entries that come from receipts.
        stages: executed one after the other.
        tokenizer: copies the tokenizer into a given folder.
        work_bytes: size of the input, for the choice of workers.
        error_budget: tolerated share of rejected records, of damaged files and of lost bytes, each on its own.
        repeated_links: source -> number of links that were not followed, as their folder is read under another name.
    """

    output: str
    head: Manifest
    stages: Sequence[Stage]
    tokenizer: Callable[[str], None]
    work_bytes: int
    error_budget: float = 1.0
    repeated_links: Mapping[str, int] = field(default_factory=dict)


def run_job(job: Job, engine: Engine) -> Manifest:
    """Run or resume a job and return the manifest; a finished artefact is left as it is.

    Raises:
        FarspanError: the folder holds something else, another process works on it, a task failed, or the error budget
            is spent.
    """
    if not 0 <= job.error_budget <= 1:
        raise FarspanError(f"--error-budget {job.error_budget}: give a share from 0 to 1")
    try:
        with locked(job.output):
            return _run_locked(job, engine)
    except OSError as error:
        if cured := from_os_error(error, job.output):
            raise FarspanError(f"{cured}; {REPEAT}") from error
        raise


def check_output(output: str) -> None:
    """Check that a job may write to a folder: it is empty, or holds an artefact, finished or not.

    Raises:
        FarspanError: it holds something else.
    """
    held = (NAME, os.path.join(WORK, "job.json"))
    if not any(files.exists(os.path.join(output, name)) for name in held) and any(files.walk(output)):
        raise FarspanError(f"{output}: not empty and no farspan artefact; give --output a new or empty folder")


def begin(job: Job) -> set[str] | None:
    """Write the job's description into its folder, or compare it with the one there; the caller holds the lock.

    Returns:
        The names of the tasks that are done; None if the artefact is finished.

    Raises:
        FarspanError: the folder holds something else.
    """
    work = os.path.join(job.output, WORK)
    if files.exists(os.path.join(job.output, NAME)):
        finished = read_manifest(job.output)
        _refuse_changes(job.output, finished.job, job.head.job)
        files.delete(files.walk(work))
        return None
    opened = os.path.join(work, "job.json")
    tasks = [task.name for stage in job.stages for task in stage.tasks]
    if files.exists(opened):
        _refuse_changes(job.output, read_start(opened).head.job, job.head.job)
        sweep(job.output)
        files.delete(_ending(work, ".failed"))
    else:
        check_output(job.output)
    start = {"head": json.loads(job.head.to_json()), "tasks": tasks, "repeated_links": job.repeated_links}
    write_bytes(opened, json_bytes(start))
    job.tokenizer(os.path.join(job.output, "tokenizer"))

    done = {os.path.basename(path).removesuffix(".json") for path in _ending(work, ".json")}
    left = sum(name not in done for name in tasks)
    if 0 < left < len(tasks):
        print(f"resuming: {len(tasks) - left} of {len(tasks)} tasks are done", file=sys.stderr)
    return done


def _run_locked(job: Job, engine: Engine) -> Manifest:
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
                raise _explain(work, error) from error
    require_begun(job.output)
    return finalize(job.output, job.error_budget)


@dataclass(frozen=True)
class RunTask:
    """Does one task and writes its receipt, unless the receipt exists."""

    stage: str
    work: Callable[[Task, Report], Receipt]
    output: str
    reporter: Reporter

    def __call__(self, task: Task, barrier: Any = None) -> str:
        from pipelines.engine.beam.stores import (
            use_flags_of_pipeline,
        )  # loads Beam, which laying out a job does not need

        use_flags_of_pipeline()
        place = os.path.join(self.output, WORK, task.name)
        if not files.exists(f"{place}.json"):
            try:
                require_begun(self.output)
                receipt = self.work(task, lambda done: self.reporter(self.stage, task.name, done))
                write_bytes(f"{place}.json", receipt.to_json())
            except Exception as error:
                text = _told(error, self.output)
                with suppress(OSError, FarspanError):  # the disk may be full; a deleted folder is not created again
                    require_begun(self.output)
                    write_bytes(f"{place}.failed", text.encode())
                raise FarspanError(f"{_TOLD}task {task.name} failed: {text}") from error
            finally:
                pa.default_memory_pool().release_unused()  # a long job then needs no more memory than its largest task
        self.reporter(self.stage, task.name, task.units)
        return task.name


def require_begun(output: str) -> None:
    """Refuse to write to a folder that was deleted or finished meanwhile.

    Raises:
        FarspanError: it is gone, or another job finished it, as one may in an object store.
    """
    if not files.exists(os.path.join(output, WORK, "job.json")):
        if files.exists(os.path.join(output, NAME)):
            raise FarspanError(f"{output}: another job finished this artefact meanwhile; look at it, or make another")
        raise FarspanError(f"{output}: was deleted while the job ran; run the same command again to begin anew")


def _told(error: Exception, output: str) -> str:
    """The message to the user for a task's exception, with the cure."""
    if isinstance(error, OSError) and (cured := from_os_error(error, output)):
        return f"{cured}; {REPEAT}"
    return f"{error}\n{_MEND}" if isinstance(error, FarspanError) else f"{traceback.format_exc()}{REPEAT}"


def _build(pipeline: Any, job: Job, done: set[str], reporter: Reporter) -> None:
    """Create | Reshuffle | Map for each stage, a stage waiting for the one before by way of a side input."""
    from pipelines.engine.beam.apache import beam

    barrier: list[Any] = []
    for stage in job.stages:
        for task in stage.tasks:
            if task.name in done:
                reporter(stage.name, task.name, task.units)
        finished = (
            pipeline
            | f"{stage.name}: tasks" >> beam.Create([task for task in stage.tasks if task.name not in done])
            | f"{stage.name}: spread" >> beam.Reshuffle()
            | f"{stage.name}: work" >> beam.Map(RunTask(stage.name, stage.work, job.output, reporter), *barrier)
        )
        barrier = [beam.pvalue.AsIter(finished)]


def _refuse_changes(output: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    now = json.loads(json.dumps(now))
    if before["format"] != now["format"]:
        raise FarspanError(f"{output}: holds {before['format']}, not {now['format']}; give --output another folder")
    changed = [f"{name} was {a!r}, is {b!r}" for name, a, b in _differences(before, now)]
    if changed:
        raise FarspanError(
            f"{output}: holds a job with another configuration: {'; '.join(changed[:5])}. "
            "Give --output another folder, or delete this one to make it again"
        )


def _differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, _short(before), _short(now)


def _short(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= 80 else text[:77] + "..."


def _ending(folder: str, suffix: str) -> list[str]:
    return [path for path in files.walk(folder) if path.endswith(suffix)]


def _explain(work: str, error: Exception) -> FarspanError:
    failed = _ending(work, ".failed")
    if failed:
        reason = read_bytes(failed[0]).decode(errors="replace").strip()
        task = os.path.basename(failed[0]).removesuffix(".failed")
        return FarspanError(f"task {task} failed: {reason}")
    if told := re.search(rf"{_TOLD}(task [\w-]+ failed: .*?)(?: \[while running|$)", str(error), re.MULTILINE):
        return FarspanError(told[1])
    last = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
    return FarspanError(f"the runner stopped: {last}; finished tasks are kept")
