"""Logs of runs: metrics by step, starts and spikes of the loss; ``farspan runs`` prints a table of them."""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from corpora.errors import FarspanError, from_extra
from corpora.printing import printable
from corpora.reporting import print_table
from pipelines.engine.progress import short
from pipelines.options import Runs
from trainer.checkpoint.run_files import METRICS, STARTS, SUMMARY, parse_lines, read_lines

HELD_OUT = "held_out_loss"
"""Metric of all held-out data together; with several sources, ``held_out_loss/NAME`` is that of one."""
_BEFORE = 50  # number of updates with which a spike is compared
_LEAST = 10  # updates needed before a spike can be detected
_DEVIATIONS = 8.0  # median absolute deviations that make a spike
_EVENTS = "events.out.tfevents.*"
_RATES = 20  # number of latest updates over which the speed is averaged


@dataclass(frozen=True)
class Logs:
    """Metrics of a run."""

    folder: Path  # directory of the run
    records: tuple[Mapping[str, Any], ...]  # entries of the metrics file, by ascending `step`
    starts: tuple[Mapping[str, Any], ...] = ()  # an entry for each start of the run, in order

    def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the steps that have a metric that is finite, ``(n,)``, and its values, ``(n,)`` float64."""
        logged = ((line["step"], line.get(name)) for line in self.records)
        points = [(step, value) for step, value in logged if isinstance(value, int | float) and math.isfinite(value)]
        steps, values = zip(*points, strict=True) if points else ((), ())
        return np.array(steps, np.int64), np.array(values, np.float64)

    @property
    def held_out(self) -> list[str]:
        """Names of the held-out losses."""
        names = dict.fromkeys(name for line in self.records for name in line)
        return [name for name in names if name.partition("/")[0] == HELD_OUT]

    @property
    def restarts(self) -> list[int]:
        """Updates after which the run was started again and went on."""
        last = int(self.records[-1]["step"]) if self.records else 0
        return [int(start["step"]) for start in self.starts[1:] if 0 < start.get("step", 0) < last]

    @cached_property
    def spikes(self) -> list[int]:
        """Updates at which the loss rose."""
        return find_spikes(*self.curve("loss"))

    def tokens_at(self, steps: np.ndarray) -> np.ndarray:
        """Count the source tokens read up to each of the ``(n,)`` steps, ``(n,)`` float64."""
        known, tokens = self.curve("source_tokens")
        total = np.concatenate([[0.0], np.cumsum(tokens)])
        return total[np.searchsorted(known, steps, side="right")]


class Follower:
    """The logs of a run that is trained meanwhile; each call reads the lines that were added."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._inode, self._place = folder, 0, 0
        self._records: list[dict[str, Any]] = []

    def read(self) -> Logs:
        """Return the logs so far; a run without an update has no records."""
        path = self._folder / METRICS
        with suppress(FileNotFoundError), path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._place:  # the run was started again
                self._inode, self._place, self._records = status.st_ino, 0, []
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
            self._place += len(whole) + bool(whole)
            self._records += [line for line in parse_lines(whole.splitlines()) if isinstance(line.get("step"), int)]
        return Logs(self._folder, tuple(self._records), tuple(read_lines(self._folder / STARTS)))


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a metrics file that name their step; none if a run was killed in its first entry."""
    return (line for line in read_lines(path) if isinstance(line.get("step"), int))


def read_logs(folder: str | os.PathLike[str]) -> Logs:
    """Read ``metrics.jsonl`` of a run, or else TensorBoard's event files."""
    place = Path(folder)
    records = list(records_in(place / METRICS))
    if not records and any(place.glob(_EVENTS)):
        records = _read_events(place)
    if not records and (place / STARTS).is_file():
        raise FarspanError(f"{place}: the run has logged no update yet")
    if not records:
        raise FarspanError(f"{place}: no {METRICS}, and no event files of TensorBoard; give a run of `farspan train`")
    return Logs(place, tuple(sorted(records, key=lambda line: int(line["step"]))), tuple(read_lines(place / STARTS)))


def _read_events(folder: Path) -> list[dict[str, Any]]:
    """Read the scalars of TensorBoard's event files; for a repeated step, the later values count."""
    with from_extra("tracking", "reading event files"):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    records: dict[int, dict[str, Any]] = {}
    for name in events.Tags()["scalars"]:
        for event in events.Scalars(name):
            records.setdefault(event.step, {"step": event.step})[name] = event.value
    return list(records.values())


def average(values: np.ndarray, width: int, outliers: bool = False) -> np.ndarray:
    """Moving average of ``(n,)`` values over the last ``width`` of them, or fewer at the beginning.

    ``outliers`` asks for the moving median instead, which a single high value does not change.
    """
    if outliers:
        before = np.full(max(width, 1) - 1, np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([before, values]), max(width, 1))
        return np.nanmedian(windows, axis=1)
    totals = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    firsts = np.maximum(ends - max(width, 1), 0)
    return (totals[ends] - totals[firsts]) / (ends - firsts)


def find_spikes(steps: np.ndarray, loss: np.ndarray, max_spikes: int = 10) -> list[int]:
    """Find updates whose loss is far above that of the updates before; among close ones, the highest.

    An update is a spike if its loss exceeds the median of the 50 updates before it by 8 times their median absolute
    deviation; the ``max_spikes`` highest are kept. ``steps``, ``(n,)``, ascend; ``loss`` is ``(n,)``.
    """
    result: list[tuple[float, int, int]] = []  # height, number, step
    if len(loss) <= _LEAST:
        return []
    padded = np.concatenate([np.full(_BEFORE, np.nan), loss[:-1]])
    before = np.lib.stride_tricks.sliding_window_view(padded, _BEFORE)[_LEAST:]  # (n - 10, 50), nan before the first
    middles = np.nanmedian(before, axis=1)
    spreads = np.nanmedian(np.abs(before - middles[:, None]), axis=1)
    deviations = np.maximum(np.maximum(spreads, 1e-3 * np.abs(middles)), np.finfo(float).tiny)
    heights = (loss[_LEAST:] - middles) / deviations
    for number in (_LEAST + np.flatnonzero(heights >= _DEVIATIONS)).tolist():
        height = float(heights[number - _LEAST])
        if result and number - result[-1][1] <= _LEAST:
            result[-1] = max(result[-1], (height, number, int(steps[number])))
        else:
            result.append((height, number, int(steps[number])))
    return sorted(step for _, _, step in sorted(result, reverse=True)[:max_spikes])


def command(options: Runs) -> None:
    """Run ``farspan runs``."""
    facts = runs(options.folder)
    if options.print_rows("runs", f"runs in {options.folder}", facts):
        return
    table = Table()
    for name in ("run", "recipe", "step", "loss", "held-out", "tokens/s", "state", "started"):
        table.add_column(name, justify="right" if name in ("step", "loss", "held-out", "tokens/s") else "left")
    for row in facts:
        steps = f"{row['step']:,}" + (f" of {row['steps']:,}" if row["steps"] else "")
        cells = (row["run"], row["recipe"], steps, _loss(row["loss"]), _loss(row["held_out_loss"]))
        speed = "" if row["tokens_per_second"] is None else short(row["tokens_per_second"])
        table.add_row(*(Text(printable(cell)) for cell in (*cells, speed, row["state"], row["started"][:16])))
    print_table(table)


def runs(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return facts about each run below a folder, by name: ``run``, ``recipe``, ``step``, ``steps``, ``loss``, ..."""
    top = Path(folder)
    places = sorted(path.parent for path in top.rglob(METRICS) if any(records_in(path)))
    if not places:
        raise FarspanError(f"{top}: holds no run; give a folder with runs of `farspan train`")
    return [run_facts(read_logs(place), str(place.relative_to(top))) for place in places]


def run_facts(logs: Logs, name: str) -> dict[str, Any]:
    """Facts about a run, as in ``runs``."""
    last: dict[str, Any] = logs.starts[-1] if logs.starts else {}  # type: ignore[assignment]
    step = max((int(line["step"]) for line in logs.records), default=0)
    _, losses = logs.curve("loss")
    _, rates = logs.curve("source_tokens_per_second")
    measured = {name: values[-1] for name in logs.held_out if len(values := logs.curve(name)[1])}
    held_out = [measured[HELD_OUT]] if HELD_OUT in measured else list(measured.values())
    return {
        "run": logs.folder.name if name == "." else name,
        "recipe": str(last.get("recipe", "")),
        "step": step,
        "steps": last.get("steps"),
        "loss": float(losses[-1]) if len(losses) else None,
        "held_out_loss": float(sum(held_out) / len(held_out)) if held_out else None,
        "tokens_per_second": float(rates[-_RATES:].mean()) if len(rates) else None,
        "state": run_state(logs.folder),
        "started": str(logs.starts[0].get("started", "")) if logs.starts else "",
    }


def run_state(folder: Path) -> str:
    """Describe a run as ``running``, ``finished`` if it has its summary, or ``stopped``, the same in every list."""
    if in_use(folder):
        return "running"
    return "finished" if (folder / SUMMARY).is_file() else "stopped"


def in_use(folder: Path) -> bool:
    """True if a process is training the run, on this machine or, if the file system shares locks, on another."""
    try:
        with (folder / "checkpoints" / "run.lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # never started, or a file system without locks
    return False


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
