"""Claims, files that exactly one process creates: the rule for the next one, and the order in which tasks are claimed.

A claim is held by the process whose name its file holds, until it is given back (the file goes), the process has failed
(the file says so) or is dead; then the next generation of the claim may be created. So the generation counts the
processes that died or failed with it.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from corpora.storage import files
from pipelines.engine.job import Task

_LISTED = 1000  # names that an object store lists per request
_READ = 50  # names of a local folder that are listed in the time of a claim


@dataclass(frozen=True)
class Owner:
    """The process that made a claim, and the message with which its attempt failed; empty while it works."""

    name: str
    failure: str = ""


@dataclass(frozen=True)
class Claims:
    """The claims of the process ``owner`` in one folder, which exists if it is local."""

    folder: str
    owner: str

    def create(self, name: str, generation: int = 1) -> bool:
        """Claim what has a name; False if another process was first.

        A store may create the file and lose its answer, so that a repeated request finds it there: its owner decides.
        """
        made = files.create_new(self._path(name, generation), self.owner.encode())
        return made or self.owner_of(name, generation) == Owner(self.owner)

    def owner_of(self, name: str, generation: int) -> Owner | None:
        """Return the process that made a claim; None if there is none (any more).

        A process that was killed between the creation of the file and its first byte leaves a name that no process has.
        """
        try:
            owner, _, failure = files.read_bytes(self._path(name, generation)).decode(errors="replace").partition("\n")
        except FileNotFoundError:
            return None
        return Owner(owner or f"?{name}.{generation}", failure)

    def fail(self, name: str, generation: int, message: bytes) -> None:
        """Pass a claim on to another process."""
        files.write_bytes(self._path(name, generation), self.owner.encode() + b"\n" + message)

    def give_back(self, name: str, generation: int) -> None:
        files.delete([self._path(name, generation)])

    def generations(self) -> dict[str, int]:
        """Name -> highest generation of its claims; other files are passed over."""
        newest: dict[str, int] = {}
        for file in files.names(self.folder):
            name, _, generation = file.rpartition(".")
            if name and generation.isdecimal():
                newest[name] = max(newest.get(name, 0), int(generation))
        return newest

    def _path(self, name: str, generation: int) -> str:
        return os.path.join(self.folder, f"{name}.{generation}")


def next_generation(generation: int, owner: Owner | None, dead: bool) -> int | None:
    """The generation of a claim that may be created now; None while its owner works.

    ``generation`` is the highest that was made, 0 for none; ``owner`` made it, None if it was given back.
    """
    if generation == 0:
        return 1
    if owner is None:
        return generation
    return generation + 1 if dead or owner.failure else None


def group_by_size(tasks: Iterable[Task]) -> list[list[Task]]:
    """Groups of tasks that differ by less than a half, the largest tasks first; each in the order of names.

    A process goes through a group from a random place, and from another one whenever it meets a claim. In an order
    common to all, what a process has claimed lies together, so that few jumps and few claims of others lie on the way.
    """
    ordered = sorted(tasks, key=lambda task: (-_size_class(task), task.name))
    return [[*group] for _, group in groupby(ordered, _size_class)]


def shuffle(tasks: Iterable[Task], process: str) -> list[Task]:
    """Return tasks from large to small, those of similar size in an order that differs by process."""
    sample = random.Random(process).sample
    return [task for group in group_by_size(tasks) for task in sample(group, len(group))]


def _size_class(task: Task) -> int:
    return round(2 * math.log2(task.units)) if task.units > 0 else -1


def listing_cost(files: int, *, local: bool) -> int:
    """Return the number of requests, or of failed claims on a local disk, that listing so many files is worth."""
    return 1 + files // (_READ if local else _LISTED)


def pause_after(waited: float, least: float, most: float = 10.0) -> float:
    """Seconds until the next look: a quarter of the time waited, so that a long wait costs few looks."""
    return min(max(least, waited / 4), most)
