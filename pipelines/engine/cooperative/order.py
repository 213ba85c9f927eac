"""The order in which a process claims tasks, and the pace at which it looks at the progress of others."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import groupby

from pipelines.engine.job import Task

_LISTED = 1000  # names that an object store lists per request
_READ = 50  # names of a local folder that are listed in the time of a claim


def by_size(tasks: Iterable[Task]) -> list[list[Task]]:
    """Groups of tasks that differ by less than a half, the largest tasks first; each in the order of names.

    A process goes through a group from a random place, and from another one whenever it meets a claim. In an order
    common to all, what a process has claimed lies together, so that few jumps and few claims of others lie on the way.
    """
    ordered = sorted(tasks, key=lambda task: (-_size_class(task), task.name))
    return [[*group] for _, group in groupby(ordered, _size_class)]


def shuffled(tasks: Iterable[Task], process: str) -> list[Task]:
    """Return tasks from large to small, those of similar size in an order that differs by process."""
    shuffle = random.Random(process).sample
    return [task for group in by_size(tasks) for task in shuffle(group, len(group))]


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
    """Pauses of a process that waits: a quarter of the time that it has waited, so that a long wait costs few looks.

    Attributes:
        least, most: seconds of a pause.
    """

    least: float
    most: float = 10.0
    clock: Callable[[], float] = time.monotonic
    begun: float = field(init=False)

    def __post_init__(self) -> None:
        self.begun = self.clock()

    def pause(self) -> float:
        """Seconds to wait until the next look."""
        return min(max(self.least, (self.clock() - self.begun) / 4), self.most)
