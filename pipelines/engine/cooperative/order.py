"""The order in which a process claims tasks, and the pace at which it checks the progress of others."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from pipelines.engine.job import Task

_LISTED = 1000  # names that an object store lists per request
_READ = 50  # names of a local folder that are listed in the time of a claim
_SHORTEST, _LONGEST = 0.05, 5.0  # seconds between two checks while nothing changes


def order_of(tasks: Iterable[Task], process: str) -> list[Task]:
    """Return tasks from large to small; tasks of similar size (within a half) are in an order that differs by process.

    With one order for all, every process would try to claim tasks that others have just claimed.
    """

    def rank(task: Task) -> tuple[int, bytes]:
        return -_size_class(task), hashlib.blake2b(f"{process} {task.name}".encode(), digest_size=8).digest()

    return sorted(tasks, key=rank)


def by_size(tasks: Iterable[Task]) -> list[list[Task]]:
    """Groups of tasks that differ by less than a half, the largest tasks first; each in the order of names.

    A process goes through a group from a random place, and from another one whenever it meets a claim. In an order
    common to all, what a process has claimed lies together, so that few jumps and few claims of others lie on the way.
    """
    ordered = sorted(tasks, key=lambda task: (-_size_class(task), task.name))
    return [[*group] for _, group in groupby(ordered, _size_class)]


def _size_class(task: Task) -> int:
    return round(2 * math.log2(task.units)) if task.units > 0 else -1


def listing_cost(files: int) -> int:
    """Return the number of requests for listing a folder with this number of files."""
    return 1 + files // _LISTED


def claims_per_listing(files: int, *, local: bool) -> int:
    """Return the number of failed claims that cost as much as listing a folder with this number of files."""
    return 1 + files // _READ if local else listing_cost(files)


@dataclass
class Pace:
    """Time between two looks: longer the longer nothing changes, and so that an object store is not flooded.

    Attributes:
        rate: requests a second that looking may take.
    """

    rate: float
    pause: float = _SHORTEST

    def after(self, requests: int, changed: bool) -> float:
        """Seconds to wait after a look.

        Args:
            requests: that it took.
            changed: True if it saw something new.
        """
        self.pause = _SHORTEST if changed else min(2 * self.pause, _LONGEST)
        return min(max(self.pause, requests / self.rate), 3 * _LONGEST)
