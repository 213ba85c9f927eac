"""A job: stages of independent file-level tasks that end in one artefact.

Data stays in files. A task writes its output under a temporary name, renames it, then writes a receipt to ``_work/``;
the manifest is a fold over the receipts. So a killed job can be resumed, and a task may run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpora.errors import FarspanError, from_os_error
from corpora.storage.manifest import Manifest, Receipt
from pipelines.engine.options import Engine
from pipelines.engine.presence.lock import locked

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
        origins: role -> path of each artefact that it is made from, to be recorded beside the manifest.
    """

    output: str
    head: Manifest
    stages: Sequence[Stage]
    tokenizer: Callable[[str], None]
    work_bytes: int
    error_budget: float = 1.0
    repeated_links: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


def run_job(job: Job, engine: Engine) -> Manifest:
    """Run or resume a job and return the manifest; a finished artefact is left as it is.

    Raises:
        FarspanError: the folder holds something else, another process works on it, a task failed, or the error budget
            is spent.
    """
    if not 0 <= job.error_budget <= 1:
        raise FarspanError(f"--error-budget {job.error_budget}: give a share from 0 to 1")
    try:
        if engine.engine == "cooperative":
            from pipelines.engine.cooperative import run as cooperative

            return cooperative.run_stages(job, engine)
        with locked(job.output, engine.lease):
            from pipelines.engine.beam.pipeline import run_stages

            return run_stages(job, engine)
    except OSError as error:
        if cured := from_os_error(error, job.output):
            raise FarspanError(f"{cured}; {REPEAT}") from error
        raise
