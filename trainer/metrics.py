"""What a run says while it runs: a JSON line a step in a file, and one line of progress on the screen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from corpora.errors import FarspanError
from corpora.files import LocalFiles, write_bytes


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """What a run says, and how often.

    Attributes:
        log_every: steps between plain progress lines; the metrics file has every step.
        tensorboard: also write event files into the run's directory; needs the extra ``tracking``.
        peak_tflops: what the share of arithmetic that is used refers to, for one device: a number, ``measure`` to time
            a large matrix product when the run starts, or ``none``.

    Raises:
        FarspanError: a count below 1, a peak that is neither.
    """

    log_every: int = 10
    tensorboard: bool = False
    peak_tflops: float | Literal["measure"] | None = "measure"

    def __post_init__(self) -> None:
        if self.log_every < 1:
            raise FarspanError(f"metrics.log_every is {self.log_every}; it must be at least 1")
        if isinstance(self.peak_tflops, float | int) and self.peak_tflops <= 0:
            raise FarspanError(f"metrics.peak_tflops is {self.peak_tflops}; it must be above 0, 'measure' or 'none'")


class MetricsFile:
    """``metrics.jsonl``: one JSON object a line, each with its ``step``."""

    def __init__(self, path: Path, step: int) -> None:
        """Open for the updates after ``step``; lines of later ones, which will be made again, are dropped."""
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = []
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    if json.loads(line)["step"] <= step:
                        kept.append(line)
                except ValueError:  # the last line of a run that was killed while it wrote
                    continue
        write_bytes(LocalFiles(), str(path), b"".join(kept))
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """The same records as curves, for TensorBoard; part of the extra ``tracking``."""

    def __init__(self, directory: Path) -> None:
        """Write event files into ``directory``.

        Raises:
            FarspanError: TensorBoard is not installed.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise FarspanError(
                "metrics.tensorboard is true, but TensorBoard is not installed; pip install 'farspan[tracking]'"
            ) from error
        self._writer = SummaryWriter(str(directory))

    def write(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            if name != "step" and isinstance(value, int | float):
                self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class Together:
    """Several places for the same records."""

    def __init__(self, places: Sequence[MetricsFile | TensorBoard]) -> None:
        self._places = places

    def write(self, record: Mapping[str, Any]) -> None:
        for place in self._places:
            place.write(record)

    def close(self) -> None:
        for place in self._places:
            place.close()


class Display:
    """A progress bar in a terminal, a plain line every ``log_every`` steps elsewhere."""

    def __init__(self, steps: int, log_every: int, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.steps, self.log_every = steps, log_every
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"),
            TimeRemainingColumn(), console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=steps)

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.bar.stop()

    def update(self, record: Mapping[str, Any]) -> None:
        """Show the ``record`` of a step."""
        loss = "skipped" if record["loss"] is None else f"loss {record['loss']:.4f}"
        text = (
            f"{loss}  lr {record['learning_rate']:.2e}  {record['source_tokens_per_second']:,.0f} source tokens/s  "
            f"{record['seconds']:.2f} s"
        )
        self.bar.update(self.task, completed=record["step"], description=text)
        if not self.console.is_terminal and (record["step"] % self.log_every == 0 or record["step"] == self.steps):
            self.say(f"step {record['step']}/{self.steps}  {text}")

    def say(self, message: str) -> None:
        """Print a line of its own."""
        self.console.print(message, markup=False)
