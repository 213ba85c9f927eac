"""The pace of a stage of a job: share done, rate, time left, and memory of the processes on this machine."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

_LINE_SECONDS = 30.0  # between two lines in a log, and before a job's first one


@dataclass
class Pace:
    """The units of a stage that are done, and when a log gets a line about them.

    A line is due after half a minute without one, and from the first half minute on at each tenth of the stage.

    Attributes:
        total, unit: size of the stage.
        clock: seconds.
        earlier: units done before this start of the job, which say nothing about the rate.
        rejects: records that finished tasks of this start have rejected.
        done: units done.
    """

    total: int
    unit: str
    clock: Callable[[], float] = time.monotonic
    earlier: int = 0
    rejects: int = 0
    done: int = 0
    _done: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _begun: float | None = None
    _tenth: int = 0

    def restored(self, task: str, units: int) -> None:
        """Count a task that was done before this start."""
        self._count(task, units)
        self.earlier += units
        self._tenth = 10 * self.done // max(self.total, 1)

    def received(self, task: str, units: int, rejects: int = 0, since: float | None = None) -> None:
        """Take the units that a task has done so far.

        Args:
            since: time from which the rate counts if this is the stage's first report, whose units took time before
                it; now by default.
        """
        if self._begun is None:
            self._begun = self.clock() if since is None else since
        self._count(task, units)
        self.rejects += rejects

    def _count(self, task: str, units: int) -> None:
        with self._lock:  # reports come from several threads; to add up all tasks for each would take n * n steps
            self.done += units - self._done.get(task, 0)
            self._done[task] = units

    def due(self, begun: float, last: float) -> bool:
        """True if a line is due.

        Args:
            begun: time at which the job began.
            last: time of the last line of any stage; ``begun`` before the first one.
        """
        tenth = 10 * self.done // max(self.total, 1)
        if self.clock() - last >= _LINE_SECONDS or (tenth > self._tenth and self.clock() - begun >= _LINE_SECONDS):
            self._tenth = tenth
            return True
        return False

    def values(self) -> dict[str, Any]:
        """Numbers for a program; ``rate`` and ``seconds_left`` are None before anything is done."""
        seconds = 0.0 if self._begun is None else self.clock() - self._begun
        fresh = self.done - self.earlier
        rate = fresh / seconds if fresh and seconds > 0 else None
        return {
            "done": self.done,
            "total": self.total,
            "unit": self.unit,
            "share": self.done / max(self.total, 1),
            "rate": rate,
            "seconds_left": None if rate is None else (self.total - self.done) / rate,
            "rejects": self.rejects,
            "memory_bytes": memory_of_family(),
        }

    def described(self) -> str:
        """The same in words."""
        found = self.values()
        parts = [f"{found['share']:.0%} ({self.done:,} of {self.total:,} {self.unit})"]
        if found["rate"] is not None:
            parts += [f"{short(found['rate'])} {self.unit}/s", f"{timedelta(seconds=ceil(found['seconds_left']))} left"]
        if self.rejects:
            parts.append(f"{self.rejects:,} rejected")
        if found["memory_bytes"] is not None:
            parts.append(f"{found['memory_bytes'] / 2**30:.1f} GiB")
        return ", ".join(parts)


def short(number: float) -> str:
    """Format a number with three digits: 0.0213, 2.13, 213, 2,130."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def memory_of_family(root: int | None = None) -> int | None:
    """Return the resident bytes of a process (this one) and its descendants; None on systems without ``/proc``.

    Pages that several share count for each of them.
    """
    pages, waiting = 0, [os.getpid() if root is None else root]
    while waiting:
        place = Path("/proc", str(waiting.pop()))
        try:
            pages += int((place / "statm").read_text().split()[1])
            for thread in (place / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
        except (OSError, ValueError, IndexError):
            continue  # ended meanwhile
    return pages * os.sysconf("SC_PAGE_SIZE") if pages else None
