"""A job: stages of independent file-level tasks that end in one artefact, and the paths of their files.

Data stays in files. A task writes its output under a temporary name, renames it, then writes a receipt to ``_work/``;
the manifest is a fold over the receipts. So a killed job can be resumed, and a task may run twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corpora.storage import files
from corpora.storage.manifest import Manifest, Receipt
from corpora.storage.shards import shard_name

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
    """Tasks that are independent of each other."""

    name: str
    tasks: Sequence[Task]
    work: Callable[[Task, Report], Receipt]  # picklable; reports the units done so far
    unit: str  # of ``Task.units``


@dataclass(frozen=True)
class Job:
    """Declaration of the job that makes an artefact.

    ``versions`` maps paths of the manifest's inputs to versions of the raw files: finished tasks read these, so a job
    is resumed with equal ones only. ``repeated_links`` counts, by source, the links that were not followed, because
    their folder is read under another name.
    """

    output: str  # its folder
    head: Manifest  # without the entries that come from receipts
    stages: Sequence[Stage]  # executed one after the other
    tokenizer: Callable[[str], None]  # copies the tokenizer into a given folder
    work_bytes: int  # size of the input, for the choice of workers
    error_budget: float = 1.0  # tolerated share of rejected records, of damaged files, of lost bytes: each on its own
    repeated_links: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)  # role -> path of each artefact that it is made from
    workers: int | None = None  # processes that suit the work, such as one a GPU, instead of one a core


def make_sharded_stage(
    name: str, work: Callable[[Task, Report], Receipt], unit: str, units: Sequence[int], /, **payloads: Sequence[Any]
) -> Stage:
    """A stage with one task, ``NAME-00000`` and so on, for each of ``units``, its size.

    ``payloads`` has, by the name of each entry of a payload, its value for each task; ``index`` is the task's number.
    """
    tasks = [
        Task(number_name(name, index), {"index": index, **dict(zip(payloads, values, strict=True))}, size)
        for index, (size, *values) in enumerate(zip(units, *payloads.values(), strict=True))
    ]
    return Stage(name, tasks, work, unit)


def count_by_source(sources: np.ndarray, **numbers: np.ndarray) -> dict[str, dict[str, int]]:
    """Add up ``(n,)`` numbers, or count True, for each of the ``(n,)`` sources: the counts of a receipt."""
    return {
        source: {name: int(values[sources == source].sum()) for name, values in numbers.items()}
        for source in sorted(set(sources))
    }


WORK = "_work"
"""Folder of an unfinished job's receipts and intermediate files, inside its output."""
_PRESENCE = ("processes", "claims")


def processes_folder(output: str) -> str:
    """Folder of the signs of life of the processes that work on the job."""
    return os.path.join(output, WORK, _PRESENCE[0])


def claims_folder(output: str) -> str:
    """Folder of their claims."""
    return os.path.join(output, WORK, _PRESENCE[1])


def shows_presence(output: str, path: str) -> bool:
    """True for a file that says which processes work in ``output``, and nothing of the job."""
    return path.startswith(tuple(os.path.join(output, WORK, name, "") for name in _PRESENCE))


def remove_empty_folders(output: str) -> None:
    """Remove ``_work/`` and the folders in it as far as they are empty, unless a process is there.

    An object store has no folders.
    """
    if not files.is_local(output):
        return
    try:
        with suppress(FileNotFoundError):
            os.rmdir(processes_folder(output))
    except OSError:
        return  # not empty: a process is there
    for top, _, _ in os.walk(os.path.join(output, WORK), topdown=False):
        with suppress(OSError):  # not empty, or removed by another process
            os.rmdir(top)


def number_name(name: str, index: int) -> str:
    """Return ``name`` with a number of five digits, for example ``pack-00003``."""
    return f"{name}-{index:05d}"


def work_paths(output: str, name: str, count: int, suffix: str = "") -> tuple[str, ...]:
    """Paths of ``count`` numbered intermediate files, in ``_work/`` of the output."""
    return tuple(os.path.join(output, WORK, number_name(name, index) + suffix) for index in range(count))


def shard_paths(output: str, count: int) -> tuple[str, ...]:
    """Paths of the ``count`` shards of an artefact."""
    return tuple(os.path.join(output, "shards", shard_name(index, count)) for index in range(count))
