"""Stages of numbered tasks, and the paths of what their tasks write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from corpora.storage.manifest import Receipt
from corpora.storage.shards import shard_name
from pipelines.engine.job import Report, Stage, Task
from pipelines.engine.paths import WORK


def sharded_stage(
    name: str,
    payloads: Iterable[tuple[Mapping[str, Any], int]],
    work: Callable[[Task, Report], Receipt],
    unit: str,
) -> Stage:
    """A stage with one task per payload, named ``NAME-00000``, ``NAME-00001`` and so on.

    Args:
        payloads: what each task receives, and its size in ``unit``.
        work: picklable; does one task.
    """
    return Stage(
        name,
        [Task(numbered(name, index), payload, units) for index, (payload, units) in enumerate(payloads)],
        work,
        unit,
    )


def numbered(name: str, index: int) -> str:
    return f"{name}-{index:05d}"


def work_paths(output: str, name: str, count: int, suffix: str = "") -> tuple[str, ...]:
    """Paths of ``count`` numbered intermediate files, in ``_work/`` of the output."""
    return tuple(os.path.join(output, WORK, numbered(name, index) + suffix) for index in range(count))


def shard_paths(output: str, count: int) -> tuple[str, ...]:
    """Paths of the ``count`` shards of an artefact."""
    return tuple(os.path.join(output, "shards", shard_name(index, count)) for index in range(count))
