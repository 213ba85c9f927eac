"""Estimates of a job: time, memory and disk, from its own tasks at work on a sample for about ten seconds.

The job is planned with a temporary output. Of each stage, tasks from all over the data are run until the stage has had
its share of the seconds. A later stage reads what the sampled tasks before it have written, so its cost counts by the
share of the data that it has seen. Nothing of the sample stays.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from corpora.printing import format_interval
from corpora.storage import files
from pipelines.engine.folder import begin
from pipelines.engine.job import Job, Stage
from pipelines.engine.options import Engine

SECONDS = 10.0
"""Seconds of work that an estimate rests on, or more until a stage has a rate without its start."""
_LIMIT = 4  # times its seconds, after which a stage is left without
_PIECES = 4  # parts of a measured stage whose rates give the interval
_DOUBT = 0.1  # share by which an interval is wider than the rates that were measured
_UNSEEN = (0.1, 1.5)  # time of a stage that was not measured, as a share of those that were
_CROWDED = 1.4  # processes side by side may be slower than one alone by as much
_START = 3.0  # seconds until worker processes work


@dataclass(frozen=True)
class Measured:
    """The progress of a stage in a sample, from which the whole stage follows."""

    name: str
    unit: str
    total: int  # units of the whole stage
    marks: tuple[tuple[float, float], ...]  # seconds since the stage began, and units done by then, in order
    warm: int = 0  # number of the mark from which rates count: that of the first task's end, if others follow
    share: float = 1.0  # of the stage's data that its tasks have seen, as earlier stages did a part of their tasks
    bytes: int = 0  # written by the tasks

    @property
    def sampled_units(self) -> float:
        """Units of the whole data that the sample stands for."""
        return self.marks[-1][1] * self.share if self.marks else 0.0

    @property
    def whole_bytes(self) -> int:
        """Bytes that the whole stage will write."""
        return round(self.bytes * self.total / self.sampled_units) if self.sampled_units else 0

    def seconds(self) -> tuple[float, float]:
        """Return the least and the most seconds of the whole stage in one process.

        The time until the mark ``warm`` holds a start, such as loading a model, which is paid once. The rest is cut
        into pieces of equal units, whose rates give the interval.
        """
        first = self.marks[self.warm]
        seconds, units = self.marks[-1]
        if units <= first[1]:
            least = seconds if units * self.share >= self.total else 0.5 * seconds * self.total / (units * self.share)
            return (1 - _DOUBT) * least, (1 + _DOUBT) * max(seconds, seconds * self.total / (units * self.share))
        cuts = [first]
        for mark in self.marks[self.warm + 1 :]:
            if mark[1] - cuts[-1][1] >= (units - first[1]) / _PIECES or mark is self.marks[-1]:
                cuts.append(mark)
        rates = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(cuts) if b[1] > a[1]]
        mean = (seconds - first[0]) / (units - first[1])
        left = max(self.total - self.sampled_units, 0) / self.share  # what was measured counts as it was
        # the mean of pieces varies less than one
        least, most = ((mean + rate) / 2 for rate in (min(rates), max(rates)))
        return (1 - _DOUBT) * (seconds + left * least), (1 + _DOUBT) * (seconds + left * most)


@dataclass(frozen=True)
class Estimate:
    """Time, memory and disk of a whole job."""

    seconds: tuple[float, float]  # least and most
    processes: int
    memory_bytes: int  # of all processes, from the peak of the sample
    disk_bytes: int  # of the finished artefact and the intermediate files
    output_bytes: int  # of the finished artefact
    sampled: float  # share of the first stage that was done
    unseen: tuple[str, ...] = ()  # stages that the sample did not reach, whose time was taken from the others'

    def describe(self) -> str:
        """Describe it in one line that says what it rests on."""
        doubt = f"; not measured: {', '.join(self.unseen)}" if self.unseen else ""
        return (
            f"{format_interval(self.seconds)} in {self.processes} process{'es' * (self.processes > 1)}, "
            f"{self.memory_bytes / 2**30:.2f} GiB of memory, {self.disk_bytes / 2**20:,.1f} MiB of disk, of which "
            f"{self.output_bytes / 2**20:,.1f} stay; from {self.sampled:.2%} of the data on this machine{doubt}"
        )


def combine(measured: Sequence[Measured], unseen: Sequence[str], processes: int, memory: int) -> Estimate:
    """Combine the stages of a sample to the estimate of the job; ``memory`` is that of one process."""
    spans = [stage.seconds() for stage in measured]
    least, most = sum(low for low, _ in spans), sum(high for _, high in spans)
    seconds = (least * (1 + _UNSEEN[0] * len(unseen)), most * (1 + _UNSEEN[1] * len(unseen)))
    if processes > 1:
        seconds = (seconds[0] / processes + _START, seconds[1] / processes * _CROWDED + _START)
    sizes = [stage.whole_bytes for stage in measured]
    first = measured[0]
    return Estimate(
        seconds,
        processes,
        processes * memory,
        sum(sizes),
        sizes[-1],
        min(first.sampled_units / max(first.total, 1), 1.0),
        tuple(unseen),
    )


class _Enough(BaseException):  # which no handler of errors in a task takes for one
    """The sample of a stage has had its time."""


def estimate(
    job: Job, engine: Engine, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic
) -> Estimate:
    """Run a sample of a job, planned with a temporary output, and estimate the whole."""
    begin(job)
    measured: list[Measured] = []
    share = 1.0
    for number, stage in enumerate(stage for stage in job.stages if stage.tasks):
        last = number == len(job.stages) - 1
        try:
            done = _measure(job, stage, share, seconds / len(job.stages), last, clock)
        except Exception:
            if not measured:
                raise
            break  # it needs all of what the stages before it write
        measured.append(done)
        if not last and not done.bytes:
            break  # no task has ended, so the next stage has nothing to read
        share = min(done.sampled_units / max(done.total, 1), 1.0)
    names = [stage.name for stage in job.stages if stage.tasks]
    widest = max(len(stage.tasks) for stage in job.stages)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    processes = engine.worker_count(widest, job.work_bytes, job.workers)
    return combine(measured, names[len(measured) :], processes, memory)


def _measure(job: Job, stage: Stage, share: float, seconds: float, last: bool, clock: Callable[[], float]) -> Measured:
    """Run tasks of a stage until its time is over and its rate is known; one before others finishes a task."""
    begun, before = clock(), _size(job.output)
    marks: list[tuple[float, float]] = []
    units = ended = warm = 0
    start = 0.0  # seconds of the first task
    work = _existing(stage.work, job.output)

    def report(done: int) -> None:
        if done and (not marks or units + done > marks[-1][1]):
            marks.append((clock() - begun, units + done))
        if clock() - begun >= (start + seconds if ended and last else start + _LIMIT * seconds):
            raise _Enough

    with suppress(_Enough):
        for task in random.Random(0).sample(stage.tasks, len(stage.tasks)):  # the first few lie all over the data
            work(replace(task, payload=_existing(task.payload, job.output)), report)
            units, ended = units + task.units, ended + 1
            marks.append((clock() - begun, units))
            if ended == 1:
                warm, start = len(marks) - 1, marks[-1][0]
            elif clock() - begun >= start + seconds:
                break
    if not marks:
        marks = [(clock() - begun, 1)]
    written = _size(job.output) - before if ended or last else 0
    if not last and ended:  # the next stage sees whole tasks only
        marks = [mark for mark in marks if mark[1] <= units]
    warm = warm if len(marks) > warm + 1 else 0
    total = sum(task.units for task in stage.tasks)
    return Measured(stage.name, stage.unit, total, tuple(marks), warm, share, written)


def _existing(value: Any, folder: str) -> Any:
    """Leave out files of a job's folder that the sampled tasks have not written, from tuples of paths."""
    if isinstance(value, tuple | list) and value and all(isinstance(each, str) for each in value):
        kept = [each for each in value if not each.startswith(folder + "/") or os.path.exists(each)]
        return type(value)(kept)
    if isinstance(value, Mapping):
        return {name: _existing(inner, folder) for name, inner in value.items()}
    if isinstance(value, partial):
        return partial(value.func, *(_existing(argument, folder) for argument in value.args))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: _existing(getattr(value, field.name), folder) for field in fields(value)})
    return value


def _size(folder: str) -> int:
    """Return the bytes of all files below a folder but receipts."""
    paths = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(os.path.getsize(path) for path in paths if not path.endswith(".json"))


@contextmanager
def temporary_output(output: str) -> Iterator[str]:
    """Make a folder for a sample's output, beside that of the job if this is on local disk."""
    parent = os.path.dirname(os.path.abspath(output)) if files.is_local(output) else None
    while parent and not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    folder = tempfile.mkdtemp(prefix=".estimate-", dir=parent)
    try:
        yield os.path.join(folder, "output")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
