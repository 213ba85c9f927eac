"""What a run says while it runs: a JSON line a step in a file, and one line of progress on the screen."""

from __future__ import annotations

import errno
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from corpora.errors import FarspanError, from_extra
from corpora.storage.files import write_bytes
from trainer.data.config import Batch
from trainer.model.config import ModelConfig
from trainer.model.flops import batch_flops


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
        if isinstance(self.peak_tflops, float | int) and not 0 < self.peak_tflops < math.inf:
            raise FarspanError(f"metrics.peak_tflops is {self.peak_tflops}; it must be above 0, 'measure' or 'none'")


@dataclass(frozen=True)
class Counts:
    """What passes through the model in an update, over all its micro-batches and, once added up, all ranks.

    Attributes:
        source_tokens, target_tokens: real source positions, and asked target positions.
        source_positions, target_positions: those and the padding. A masked language model has no padding in its
            target, since its head runs on asked positions alone.
        flops: of matrix products and attention by formula, 3 times those of a forward pass. Padding is counted like
            text. Of attention, pairs that see each other count, whatever a kernel computes beside them; what activation
            checkpointing and the loss compute again does not (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
    """

    source_tokens: int = 0
    source_positions: int = 0
    target_tokens: int = 0
    target_positions: int = 0
    flops: int = 0

    @classmethod
    def of(cls, batches: Iterable[Batch], model: ModelConfig, vocab_size: int) -> Counts:
        """Count ``batches``; ``model`` has the attention of their stage."""
        return sum((cls._of_one(batch, model, vocab_size) for batch in batches), cls())

    @classmethod
    def _of_one(cls, batch: Batch, model: ModelConfig, vocab_size: int) -> Counts:
        rows, source = batch.source_ids.shape
        # Rows with fewer global positions than others are padded.
        shown = 0 if batch.global_positions is None else int(batch.global_positions.sum(1).max())
        asked = batch.labels.numel() if model.decoder else batch.target_tokens
        return cls(
            source_tokens=batch.source_tokens,
            source_positions=rows * source,
            target_tokens=batch.target_tokens,
            target_positions=asked,
            flops=3 * batch_flops(model, vocab_size, rows, source, asked, shown),
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def derive(
    counts: Counts,
    *,
    loss: float | None,
    seconds: float,
    waited: float,
    devices: int = 1,
    peak_tflops: float | None = None,
) -> dict[str, Any]:
    """The numbers of one update that follow from others.

    Args:
        counts: of all ranks.
        loss: cross-entropy summed over the target tokens of all ranks; None where the update was skipped.
        seconds: from one update to the next.
        waited: seconds of these in which the model waited for batches.
        devices: that shared the work.
        peak_tflops: of one device; None where it is not known.

    Returns:
        ``loss`` and ``perplexity`` a target token, the counts of tokens and positions and each of them per second,
        the shares of positions that are padding, ``model_tflops_per_second`` of one device and its share of the peak,
        ``mfu``, both with the work on padding; ``data_wait_share`` and ``seconds``. None where a number is not known.
    """
    mean = None if loss is None else loss / max(counts.target_tokens, 1)
    tokens = {name: value for name, value in vars(counts).items() if name != "flops"}
    tflops = counts.flops / 1e12 / seconds / devices
    return {
        "loss": mean,
        "perplexity": perplexity(mean),
        **tokens,
        **{f"{name}_per_second": value / seconds for name, value in tokens.items()},
        "source_padding_share": 1 - counts.source_tokens / max(counts.source_positions, 1),
        "target_padding_share": 1 - counts.target_tokens / max(counts.target_positions, 1),
        "model_tflops_per_second": tflops,
        "mfu": tflops / peak_tflops if peak_tflops else None,
        "data_wait_share": min(waited / seconds, 1.0),
        "seconds": seconds,
    }


def perplexity(loss: float | None) -> float | None:
    """``exp(loss)``; None where that is no float64, or there is no loss."""
    return math.exp(loss) if loss is not None and loss < 700 else None


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
                except (ValueError, TypeError, LookupError):  # the last line of a run that was killed while it wrote
                    continue
        write_bytes(str(path), b"".join(kept))
        self._path, self._file = path, path.open("ab", buffering=0)

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a line.

        Raises:
            FarspanError: the disk is full or gone.
        """
        line = json.dumps(record).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise FarspanError(
                f"{self._path} cannot be written to ({error}); make room, then give the same command to go on from the "
                "last checkpoint"
            ) from error

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """The same records as curves, for TensorBoard; part of the extra ``tracking``."""

    def __init__(self, directory: Path, step: int) -> None:
        """Write event files into ``directory`` for the updates after ``step``; what it has of later ones is hidden.

        Raises:
            FarspanError: TensorBoard is not installed.
        """
        with from_extra("tracking", "metrics.tensorboard = true"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer = SummaryWriter(str(directory), purge_step=step + 1)

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


def open_metrics(config: MetricsConfig, directory: Path, step: int, rank: int = 0) -> Together:
    """Where the records of the updates after ``step`` go: ``metrics.jsonl`` in ``directory``, TensorBoard if asked.

    All ranks know the same numbers, so those above 0 write nothing.

    Raises:
        FarspanError: TensorBoard is asked for and not installed.
    """
    if rank:
        return Together([])
    places: list[MetricsFile | TensorBoard] = [TensorBoard(directory, step)] if config.tensorboard else []
    return Together([MetricsFile(directory / "metrics.jsonl", step), *places])


def make_console() -> Console:
    """The console that shows a run's progress."""
    return Console(highlight=False, soft_wrap=True)


_BAR = 16  # columns


class Display:
    """A progress bar in a terminal, a plain line every ``log_every`` steps elsewhere, both with the time left.

    Args:
        steps: of the whole run.
        done: of these, in earlier runs.
        log_every: steps between plain lines.
        console: where to; a quiet one, as ranks above 0 have, shows nothing.
    """

    def __init__(self, steps: int, log_every: int, console: Console | None = None, done: int = 0) -> None:
        self.console = console or make_console()
        self.steps, self.log_every = steps, log_every
        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"), BarColumn(_BAR), TextColumn("{task.description}"),
            console=self.console, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=steps, completed=done)
        self._seconds: deque[float] = deque(maxlen=100)  # of the latest updates

    def __enter__(self) -> Display:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.bar.stop()

    def update(self, record: Mapping[str, Any]) -> None:
        """Show the ``record`` of a step."""
        self._seconds.append(record["seconds"])
        step, parts, left = record["step"], self._described(record), self._left(record["step"])
        if self.console.is_terminal:
            room = self.console.width - len(f"step {step}/{self.steps}") - _BAR - 2  # a space between columns
            self.bar.update(self.task, completed=step, description=_fitting([parts[0], left, *parts[1:]], room))
        elif step % self.log_every == 0 or step == self.steps:
            self.say("  ".join(filter(None, [f"step {step}/{self.steps}", *parts, left])))

    def say(self, message: str) -> None:
        """Print a line of its own."""
        self.console.print(message, markup=False)

    def _left(self, step: int) -> str:
        left = (self.steps - step) * sum(self._seconds) / len(self._seconds)
        return f"{timedelta(seconds=math.ceil(left))} left" if left else ""

    @staticmethod
    def _described(record: Mapping[str, Any]) -> list[str]:
        mfu, waited = record.get("mfu"), record.get("data_wait_share", 0.0)
        padding = record.get("source_padding_share", 0.0)
        return [
            "skipped" if record["loss"] is None else f"loss {record['loss']:.4f}",
            f"lr {record['learning_rate']:.2e}",
            f"{record['source_tokens_per_second']:,.0f} source tokens/s",
            "" if mfu is None else f"{mfu:.1%} of peak",
            f"{padding:.0%} padding" if padding >= 0.05 else "",
            f"{waited:.0%} waiting for data" if waited >= 0.05 else "",
            f"{record['seconds']:.2f} s",
        ]


def _fitting(parts: Sequence[str], room: int) -> str:
    """As many of the parts, the first ones first, as go into ``room`` columns."""
    text = ""
    for part in filter(None, parts):
        longer = f"{text}  {part}" if text else part
        if len(longer) > room:
            break
        text = longer
    return text
