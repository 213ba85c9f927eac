"""Names of numbered tasks and files, and places inside an unfinished job's output."""

from __future__ import annotations

import os
from contextlib import suppress

from corpora.storage import files
from corpora.storage.shards import shard_name

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


def numbered(name: str, index: int) -> str:
    """Return ``name`` with a number of five digits, for example ``pack-00003``."""
    return f"{name}-{index:05d}"


def work_paths(output: str, name: str, count: int, suffix: str = "") -> tuple[str, ...]:
    """Paths of ``count`` numbered intermediate files, in ``_work/`` of the output."""
    return tuple(os.path.join(output, WORK, numbered(name, index) + suffix) for index in range(count))


def shard_paths(output: str, count: int) -> tuple[str, ...]:
    """Paths of the ``count`` shards of an artefact."""
    return tuple(os.path.join(output, "shards", shard_name(index, count)) for index in range(count))
