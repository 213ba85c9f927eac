"""Display of a run's progress on the console."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from corpora.reporting import Reporting, Silence, as_line, current


def make_console() -> Console:
    """Make the console that shows a run's progress."""
    return Console(highlight=False, soft_wrap=True, emoji=False)


def say(console: Console, message: str, event: str = "note", **values: Any) -> None:
    """Print a line on a console, subject to ``--quiet`` and ``--log-format``."""
    if not current().quiet:
        console.print(as_line(message, event, values), markup=False)


_BAR = 16  # columns
_RECENT = 120.0  # seconds of updates from which the time left is computed


class Display:
    """A progress bar in a terminal, elsewhere plain lines, both with the time left.

    A line comes every ``log_every`` steps and after each half minute; the first one within two seconds, while the run
    is prepared (``Silence``).
    """

    def __init__(self, log_every: int, console: Console | None = None) -> None:
        self.console = console or make_console()
        self.steps, self.log_every = 0, log_every
        self.silence = Silence(self._tell)
        self._line: tuple[str, Mapping[str, Any]] | None = None  # about the last update, if it was not logged
        self.draws = self.console.is_terminal and current() == Reporting()
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"), BarColumn(_BAR), TextColumn("{task.description}"),
            console=self.console, disable=not self.draws,
        )  # fmt: skip
        self.task = self.bar.add_task("")
        self._seconds: deque[float] = deque()  # durations of the latest updates
        self._first = True  # the latest update compiled what all others use

    def __enter__(self) -> Display:
        self.silence.__enter__()
        return self

    def begin(self, steps: int) -> None:
        """Show that the run makes updates from now on, until it has made ``steps``."""
        self.steps = steps
        self.bar.update(self.task, total=steps)
        self.bar.start()

    def __exit__(self, *error: Any) -> None:
        self.silence.__exit__(*error)
        self.bar.stop()

    def update(self, record: Mapping[str, Any]) -> None:
        """Show the ``record`` of a step."""
        self._count(record["seconds"])
        step, parts, left = record["step"], self._describe(record), self._left(record["step"])
        if self.draws:
            columns = self.console.width - len(f"step {step}/{self.steps}") - _BAR - 2  # a space between columns
            self.bar.update(self.task, completed=step, description=_fitting([parts[0], left, *parts[1:]], columns))
            self.silence.end()
            return
        self._line = "  ".join(filter(None, [f"step {step}/{self.steps}", *parts, left])), record
        if step % self.log_every == 0 or step == self.steps:
            self._tell()

    def _tell(self) -> None:
        """Print a line about the last update, or what is going on if there is none that was not logged."""
        self.silence.end()
        line, self._line = self._line, None
        if line:
            self.say(line[0], "step", **line[1], steps=self.steps)
        elif self.steps:
            self.say("at work on the next update")
        else:
            self.say("prepares the run")

    def _count(self, seconds: float) -> None:
        """Count an update for the time left: the first one only until the second, and old ones no more."""
        if self._seconds and self._first:
            self._seconds.popleft()
            self._first = False
        self._seconds.append(seconds)
        while len(self._seconds) > 1 and sum(self._seconds) > _RECENT:
            self._seconds.popleft()

    def say(self, message: str, event: str = "note", **values: Any) -> None:
        """Print a separate line, subject to ``--quiet`` and ``--log-format``."""
        say(self.console, message, event, **values)

    def warn(self, message: str) -> None:
        """Print a warning, as ``say`` prints a line."""
        self.say(f"warning: {message}", "warning")

    def _left(self, step: int) -> str:
        left = (self.steps - step) * sum(self._seconds) / len(self._seconds)
        return f"{timedelta(seconds=math.ceil(left))} left" if left else ""

    @staticmethod
    def _describe(record: Mapping[str, Any]) -> list[str]:
        mfu, waited = record.get("mfu"), record.get("data_wait_share", 0.0)
        padding = record.get("source_padding_share", 0.0)
        return [
            "skipped" if record["loss"] is None else f"loss {record['loss']:.4f}",
            f"lr {record['learning_rate']:.2e}",
            f"{record['source_tokens_per_second']:,.0f} source tokens/s",
            "" if mfu is None else f"{mfu:.1%} of peak",
            f"{padding:.0%} padding" if padding >= 0.05 else "",
            f"{waited:.0%} waiting for data" if waited >= 0.05 else "",
            f"{record['seconds']:.2f} s/update",
        ]


def _fitting(parts: Sequence[str], columns: int) -> str:
    """Join as many parts, from the first on, as fit into ``columns``."""
    text = ""
    for part in filter(None, parts):
        longer = f"{text}  {part}" if text else part
        if len(longer) > columns:
            break
        text = longer
    return text
