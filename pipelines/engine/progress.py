"""Progress of a running job: a bar for each stage, or lines with its share, rate, time left and memory.

A report carries a task's running total. Of tasks on other machines, only the end shows, by their receipts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from corpora.reporting import Reporting, Silence, current, note
from pipelines.engine.job import Stage

_CELL_SECONDS = 0.2  # between two drawings in a notebook's cell
_LINE_SECONDS = Silence.others  # between two lines in a log, and before the tenths of a job's stages have lines
_RECENT = 120.0  # seconds from which rate and time left are computed
_MARK_SECONDS = 1.0  # between two marks of what was done


class ProgressBars:
    """Draws bars in a terminal or a notebook while a job runs, and prints a line at times in a log.

    A log has a line within two seconds and after each half minute, also if no task reports (``Silence``); after the
    first half minute, one at each tenth of a stage, too.
    """

    def __init__(self, stages: Sequence[Stage], clock: Callable[[], float] = time.monotonic) -> None:
        totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in stages}
        self._console = Console(file=sys.stderr)
        self._draws = self._console.is_terminal and current() == Reporting()
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[pace]}"),
            TextColumn("after"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._draws,
        )
        self._rows = {name: self._bars.add_task(name, total=total, pace=unit) for name, (total, unit) in totals.items()}
        self._paces = {name: Pace(total, unit, clock) for name, (total, unit) in totals.items()}
        self._clock = clock
        self._silence = Silence(self._tell, clock)
        self._shown = self._heard = self._silence.begun  # when a cell was last drawn, and a report last received
        self._stage = ""  # the last one that reported
        self._cell: Any = None  # IPython's handle of what is displayed
        self._contexts = ExitStack()

    def __enter__(self) -> ProgressBars:
        if self._console.is_jupyter and current() == Reporting():
            from IPython.display import display  # by rich itself a notebook would need ipywidgets

            self._cell = display(self._bars, display_id=True)
        self._contexts.enter_context(self._bars)
        if not self._draws and not self._cell:
            self._contexts.enter_context(self._silence)
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()
        if self._cell:
            self._cell.update(self._bars)

    def restore(self, stage: Stage, done: set[str]) -> None:
        """Count tasks that an earlier start of the job has done."""
        for task in stage.tasks:
            if task.name in done:
                self._paces[stage.name].restore(task.name, task.units)
        self._bars.update(self._rows[stage.name], completed=self._paces[stage.name].done)

    def report(self, stage: str, task: str, done: int, rejects: int = 0) -> None:
        """Take one report, and show it if the last one was shown long enough ago."""
        if stage not in self._paces:
            return
        pace = self._paces[stage]
        pace.report(task, done, rejects, since=self._heard)
        self._stage, self._heard = stage, self._clock()
        self._bars.update(self._rows[stage], completed=pace.done, pace=", ".join([pace.unit, *pace.speed()]))
        if self._draws:
            return  # a terminal's bars draw themselves
        if self._cell:
            if self._clock() - self._shown >= _CELL_SECONDS:
                self._shown = self._clock()
                self._cell.update(self._bars)
            return
        begun, last = self._silence.begun, self._silence.last
        if pace.due(begun, begun if last is None else last):
            self._silence.end()
            self._tell()

    def _tell(self) -> None:
        """Print a line about the stage that reported last, or about the first one that has something to do."""
        waiting = (name for name, pace in self._paces.items() if pace.done < pace.total)
        stage = self._stage or next(waiting, next(iter(self._paces)))
        pace = self._paces[stage]
        pace.logged = pace.tenths
        text = pace.describe() if self._stage else f"starting, {pace.describe()}"
        note(f"{stage}: {text}", "progress", stage=stage, **pace.values())


@dataclass
class Pace:
    """The units of a stage that are done, and when a log gets a line about them.

    A line is due after half a minute without one, and after the first half minute at each tenth of the stage.
    ``rejects`` counts the records that finished tasks of this start have rejected.
    """

    total: int
    unit: str
    clock: Callable[[], float] = time.monotonic
    rejects: int = 0
    done: int = 0
    _done: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    _marks: deque[tuple[float, int]] = field(default_factory=deque)  # times, and the units done by then
    logged: int = 0  # tenths of the stage that were done at its last line

    def restore(self, task: str, units: int) -> None:
        """Count a task that was done before this start."""
        self._count(task, units)
        self.logged = self.tenths

    def report(self, task: str, units: int, rejects: int = 0, since: float | None = None) -> None:
        """Count the units that a task has done so far; those of a stage's first report took time from ``since`` on."""
        if not self._marks:
            self._marks.append((self.clock() if since is None else since, self.done))
        self._count(task, units)
        self.rejects += rejects
        if self.clock() - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((self.clock(), self.done))
        while len(self._marks) > 2 and self._marks[1][0] <= self.clock() - _RECENT:
            self._marks.popleft()

    def _count(self, task: str, units: int) -> None:
        with self._lock:  # reports come from several threads; to add up all tasks for each would take n * n steps
            self.done += units - self._done.get(task, 0)
            self._done[task] = units

    def due(self, begun: float, last: float) -> bool:
        """True if a line is due, by the times at which the job began and the last line of any stage was printed."""
        further = self.tenths > self.logged and self.clock() - begun >= _LINE_SECONDS
        return further or self.clock() - last >= _LINE_SECONDS

    @property
    def tenths(self) -> int:
        """Tenths of the stage that are done."""
        return 10 * self.done // max(self.total, 1)

    @property
    def rate(self) -> float | None:
        """Units per second in the last minutes; None before anything is done."""
        begun, done = self._marks[0] if self._marks else (0.0, 0)
        seconds = self.clock() - begun
        return (self.done - done) / seconds if self.done > done and seconds > 0 else None

    def speed(self) -> list[str]:
        """The rate and the time left in words; empty before anything is done.

        A task reports its units as it reads them, and may still write or compile after the last of them.
        """
        if self.rate is None:
            return []
        if self.done >= self.total:
            return ["finishing"]
        left = timedelta(seconds=ceil((self.total - self.done) / self.rate))
        return [f"{short(self.rate)} {self.unit}/s", f"{left} left"]

    def values(self) -> dict[str, Any]:
        """Numbers for a program; ``rate`` and ``seconds_left`` are None before anything is done."""
        rate = self.rate
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

    def describe(self) -> str:
        """Describe the same in words."""
        values = self.values()
        parts = [f"{values['share']:.0%} ({self.done:,} of {self.total:,} {self.unit})"]
        parts += self.speed()
        if self.rejects:
            parts.append(f"{self.rejects:,} rejected")
        if values["memory_bytes"] is not None:
            parts.append(f"{values['memory_bytes'] / 2**30:.1f} GiB")
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
