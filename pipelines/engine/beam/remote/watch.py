"""Monitoring of remote workers: progress from receipts and signs of life, and the end of a job that hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes
from pipelines.engine.beam.remote.signs import Sign, read_signs
from pipelines.engine.job import Job
from pipelines.engine.paths import WORK
from pipelines.engine.progress import ProgressBars
from pipelines.engine.tasks import is_for_good

BEGIN_SECONDS = 60.0  # without a first sign of life
CLOUD_BEGIN_SECONDS = 900.0  # the same, where machines are started for the job
RESTART_SECONDS = 300.0  # without any sign later, on an engine that starts workers again
HANG_SECONDS = 60.0  # the same, on one that does not


def silence_limits(runner: str, worker_timeout: int, restarts: bool = True) -> tuple[float, float]:
    """Seconds that workers may be silent before the first sign of life, and after it.

    Args:
        worker_timeout: the user's limit; 0 for that of the engine.
        restarts: False for an engine that gives a dead worker's task to no other.
    """
    begin = CLOUD_BEGIN_SECONDS if "Dataflow" in runner else BEGIN_SECONDS
    return worker_timeout or begin, worker_timeout or (RESTART_SECONDS if restarts else HANG_SECONDS)


@dataclass
class Silence:
    """Detector of workers that have been silent for too long.

    Attributes:
        begin, later: seconds before the first sign, and after it.
        clock: seconds.
    """

    begin: float
    later: float
    clock: Callable[[], float] = time.monotonic
    begun: bool = False
    _last: float = field(init=False)
    _seen: dict[str, int] = field(init=False, default_factory=dict)
    _receipts: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._last = self.clock()

    def observe(self, signs: Mapping[str, Sign], receipts: int) -> None:
        """Take the present contents of ``_work/``.

        A new receipt, and a changed sign of a worker with a task in hand, end the silence. Those of idle
        workers do not: they may outlive a killed worker whose task the engine does not assign again.
        """
        heard = receipts > self._receipts
        for path, sign in signs.items():
            if not sign.failed and self._seen.get(path) != sign.beat:
                heard |= bool(sign.tasks) or path not in self._seen
            self._seen[path] = sign.beat
        self._receipts = max(receipts, self._receipts)
        if heard:
            self._last, self.begun = self.clock(), True

    @property
    def seconds(self) -> float:
        return self.clock() - self._last

    @property
    def too_long(self) -> bool:
        return self.seconds > (self.later if self.begun else self.begin)


class Watch:
    """Follows a job by the files of its folder.

    Args:
        attempt: whose signs count.
    """

    def __init__(self, job: Job, attempt: str, silence: Silence, bars: ProgressBars) -> None:
        self._output, self._attempt, self.silence, self._bars = job.output, attempt, silence, bars
        self._stages = {task.name: (stage.name, task.units) for stage in job.stages for task in stage.tasks}
        self._shown: dict[str, int] = {}
        self._done: set[str] = set()
        self._failures: dict[str, str] = {}

    def look(self) -> float:
        """Read the folder once, show progress, and return the seconds that this took.

        Raises:
            FarspanError: a task failed for good, so that the engine need not repeat it.
        """
        begun = time.monotonic()
        paths = files.walk(os.path.join(self._output, WORK))
        done = {os.path.basename(path).removesuffix(".json") for path in paths if path.endswith(".json")}
        done &= self._stages.keys()
        signs = read_signs(paths)
        self._failures = {sign.worker: sign.failed for sign in signs.values() if sign.failed}
        signs = {path: sign for path, sign in signs.items() if sign.attempt == self._attempt}
        self.silence.observe(signs, len(done))
        for task in done:
            self._show(task, self._stages[task][1])
        for sign in signs.values():
            for task, (_, units) in sign.tasks.items():
                if task in self._stages and task not in done:
                    self._show(task, units)
        self._done = done
        self._stop_at_failures(paths)
        return time.monotonic() - begun

    @property
    def all_done(self) -> bool:
        """True if every task had its receipt when the folder was last read."""
        return self._done == self._stages.keys()

    def why_silent(self) -> str:
        """Return the reason that workers gave for not starting; empty if they gave none."""
        return "; ".join(f"{worker}: {reason}" for worker, reason in sorted(self._failures.items()))

    def _show(self, task: str, units: int) -> None:
        if self._shown.get(task) != units:
            self._shown[task] = units
            self._bars.received(self._stages[task][0], task, units)

    def _stop_at_failures(self, paths: list[str]) -> None:
        for path in paths:
            task = os.path.basename(path).removesuffix(".failed")
            if path.endswith(".failed") and task not in self._done:
                text = read_bytes(path).decode(errors="replace")
                if is_for_good(text):
                    raise FarspanError(f"task {task} failed: {text.strip()}")
