"""Progress of a running job: workers send small datagrams, the driver draws one bar a stage.

A lost datagram costs nothing, since each carries a task's running total; on a remote worker they go nowhere, and only
finished tasks are counted.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@dataclass(frozen=True)
class Reporter:
    """What a worker holds: where to send how much of a task is done."""

    port: int

    def __call__(self, stage: str, task: str, done: int) -> None:
        """``done``: units of the stage finished in this task so far."""
        if self.port:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(json.dumps([stage, task, done]).encode(), ("127.0.0.1", self.port))


class ProgressBars:
    """Listens in a thread while the job runs; silent when the output is no terminal."""

    def __init__(self, stages: dict[str, tuple[int, str]]) -> None:
        """``stages``: name -> (total units, unit)."""
        console = Console(file=sys.stderr)
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._rows = {name: self._bars.add_task(name, total=total, unit=unit) for name, (total, unit) in stages.items()}
        self._done: dict[str, dict[str, int]] = {name: {} for name in stages}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._listen, name="farspan-progress", daemon=True)

    @property
    def reporter(self) -> Reporter:
        return Reporter(0 if self._bars.disable else self._socket.getsockname()[1])

    def __enter__(self) -> ProgressBars:
        self._bars.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._bars.stop()

    def _listen(self) -> None:
        while True:
            try:
                stage, task, done = json.loads(self._socket.recv(4096))
            except OSError:
                return  # closed: the job has ended
            except ValueError:
                continue
            if stage in self._done:
                self._done[stage][task] = done
                self._bars.update(self._rows[stage], completed=sum(self._done[stage].values()))
