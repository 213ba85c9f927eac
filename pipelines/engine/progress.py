"""Progress of a running job: workers send small datagrams, the driver shows one bar per stage.

A lost datagram costs nothing, since each carries a task's running total. Of tasks on other
machines, only the end shows, by their receipts.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from corpora.reporting import Reporting, current, note
from pipelines.engine.job import Stage
from pipelines.engine.pace import Pace

_CELL_SECONDS = 0.2  # between two drawings in a notebook's cell


@dataclass(frozen=True)
class Reporter:
    """Sends the progress of a task from a worker to the driver."""

    port: int

    def __call__(self, stage: str, task: str, done: int, rejects: int = 0) -> None:
        """
        Args:
            done: units of the stage finished in this task so far.
            rejects: records that the task rejected, told once it is finished.
        """
        if self.port:
            with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(json.dumps([stage, task, done, rejects]).encode(), ("127.0.0.1", self.port))


class ProgressBars:
    """Listens in a thread while the job runs; draws bars in a terminal or a notebook, prints a line at times in a log.

    A log has a line after each half minute, and from the first one on at each tenth of a stage; so a job that takes
    less than half a minute leaves none (``pipelines.engine.pace``).
    """

    def __init__(self, stages: Sequence[Stage], clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            clock: seconds, for the pace of drawing.
        """
        totals = {stage.name: (sum(task.units for task in stage.tasks), stage.unit) for stage in stages}
        self._console = Console(file=sys.stderr)
        self._draws = self._console.is_terminal and current() == Reporting()
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._draws,
        )
        self._rows = {name: self._bars.add_task(name, total=total, unit=unit) for name, (total, unit) in totals.items()}
        self._paces = {name: Pace(total, unit, clock) for name, (total, unit) in totals.items()}
        self._clock, self._begun = clock, clock()
        self._shown = self._heard = self._begun  # when a line was last printed, and a report last received
        self._cell: Any = None  # IPython's handle of what is displayed
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen, name="farspan-progress", daemon=True)

    @property
    def reporter(self) -> Reporter:
        return Reporter(self._socket.getsockname()[1])

    def __enter__(self) -> ProgressBars:
        if self._console.is_jupyter and current() == Reporting():
            from IPython.display import display  # by rich itself a notebook would need ipywidgets

            self._cell = display(self._bars, display_id=True)
        self._bars.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._bars.stop()
        if self._cell:
            self._cell.update(self._bars)

    def restore(self, stage: Stage, done: set[str]) -> None:
        """Count tasks that an earlier start of the job has done."""
        for task in stage.tasks:
            if task.name in done:
                self._paces[stage.name].restored(task.name, task.units)
        self._bars.update(self._rows[stage.name], completed=self._paces[stage.name].done)

    def received(self, stage: str, task: str, done: int, rejects: int = 0) -> None:
        """Take one report, and show it if the last one was shown long enough ago."""
        if stage not in self._paces:
            return
        pace = self._paces[stage]
        pace.received(task, done, rejects, since=self._heard)
        self._heard = self._clock()
        self._bars.update(self._rows[stage], completed=pace.done)
        if self._draws:
            return  # a terminal's bars draw themselves
        if self._cell:
            if self._clock() - self._shown >= _CELL_SECONDS:
                self._shown = self._clock()
                self._cell.update(self._bars)
        elif pace.due(self._begun, self._shown):
            self._shown = self._clock()
            note(f"{stage}: {pace.described()}", "progress", stage=stage, **pace.values())

    def _listen(self) -> None:
        while True:
            try:
                self.received(*json.loads(self._socket.recv(4096)))
            except OSError:
                return  # closed: the job has ended
            except (TypeError, ValueError):
                continue  # another program's datagram
