"""A profile of a few updates: a trace for Perfetto, and a table of the slowest operations."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch
from torch.profiler import ProfilerActivity, profile

FOLDER = "profile"
_ROWS = 10  # operations in the table


class Profile:
    """Records the updates from ``run.profile[0]`` to ``run.profile[1]``, on each process.

    Afterwards ``profile/`` in the run's directory has ``trace-RANK.json.gz``, which https://ui.perfetto.dev opens, and
    ``operations-RANK.txt``, the ten operations with the most self time. Recording slows these updates down.
    """

    def __init__(self, updates: tuple[int, ...], directory: Path, rank: int, device: torch.device) -> None:
        self._first, self._last = updates or (0, -1)
        self._place, self._rank, self._cuda = directory / FOLDER, rank, device.type == "cuda"
        self._running: profile | None = None

    def __enter__(self) -> Profile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def before(self, update: int) -> None:
        """Begin or end the recording as needed before update number ``update``."""
        if update > self._last:
            self._finish()
        elif update >= self._first and self._running is None:
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])]
            self._running = profile(activities=activities)
            self._running.start()

    def _finish(self) -> None:
        """Write the recording, if there is one."""
        recorded, self._running = self._running, None
        if recorded is None:
            return
        recorded.stop()
        self._place.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(self._place / f"trace-{self._rank}.json.gz"))
        key = "self_cuda_time_total" if self._cuda else "self_cpu_time_total"
        table = recorded.key_averages().table(sort_by=key, row_limit=_ROWS)
        (self._place / f"operations-{self._rank}.txt").write_text(table, "utf-8")
