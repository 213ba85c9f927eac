"""A job: stages of independent file-level tasks that end in one artefact.

Data stays in files. A task writes its output under a temporary name, renames it, then writes a receipt to ``_work/``;
the manifest is a fold over the receipts. So a killed job can be resumed, and a task may run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from corpora.storage.manifest import Manifest, Receipt
from pipelines.engine.paths import numbered

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
        workers: processes that suit the work, such as one a GPU, instead of one a core.
        error_budget: tolerated share of rejected records, of damaged files and of lost bytes, each on its own.
        repeated_links: source -> number of links that were not followed, as their folder is read under another name.
        versions: path in the manifest's inputs -> version of the raw file. A job is resumed with equal ones only,
            as its finished tasks read these.
        origins: role -> path of each artefact that it is made from, to be recorded beside the manifest.
    """

    output: str
    head: Manifest
    stages: Sequence[Stage]
    tokenizer: Callable[[str], None]
    work_bytes: int
    error_budget: float = 1.0
    repeated_links: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    workers: int | None = None


def sharded_stage(
    name: str,
    payloads: Iterable[tuple[Mapping[str, Any], int]],
    work: Callable[[Task, Report], Receipt],
    unit: str,
) -> Stage:
    """A stage with one task, ``NAME-00000`` and so on, per payload, which is given with its size in ``unit``."""
    return Stage(
        name,
        [Task(numbered(name, index), payload, units) for index, (payload, units) in enumerate(payloads)],
        work,
        unit,
    )
