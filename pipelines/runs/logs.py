"""Logs of a run: metrics by step, starts, and spikes of the loss."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from corpora.errors import FarspanError, from_extra
from trainer.checkpoint.run_files import METRICS, STARTS, parse_lines, read_lines

HELD_OUT = "held_out_loss"
"""Metric of all held-out data together; with several sources, ``held_out_loss/NAME`` is that of one."""
_BEFORE = 50  # number of updates with which a spike is compared
_LEAST = 10  # updates needed before a spike can be detected
_DEVIATIONS = 8.0  # median absolute deviations that make a spike
_EVENTS = "events.out.tfevents.*"


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
        """Updates after which the run was started again."""
        return [int(start["step"]) for start in self.starts[1:] if start.get("step", 0) > 0]

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
