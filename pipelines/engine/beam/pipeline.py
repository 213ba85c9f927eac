"""A job as pipelines of Beam, one for each stage: one element a task, spread and retried by the engine's scheduler.

An engine needs nothing of ours but workers that have farspan: tasks, receipts and their names travel, and no data. The
driver learns from the job's folder what is done, and a stage begins when the one before has all its receipts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage import files
from corpora.storage.files import read_bytes, write_bytes
from corpora.storage.manifest import farspan_version
from pipelines.engine.beam.engine import BeamEngine
from pipelines.engine.claims import lock_of
from pipelines.engine.folder import FolderGone, require_begun
from pipelines.engine.job import WORK, Job, Stage, Task
from pipelines.engine.options import Engine, use_store_flags
from pipelines.engine.progress import ProgressBars
from pipelines.engine.tasks import RunTask, TaskFailed, is_for_good, message_bytes

_VERSIONS = (farspan_version(), f"{sys.version_info.major}.{sys.version_info.minor}")
_BEGUN = "begun"  # file in ``_work/``: a worker has begun a task
_BEGIN_SECONDS, _CLOUD_BEGIN_SECONDS = 60.0, 900.0  # until a line says that no task has begun; cloud: machines start
_END_SECONDS = 30.0  # for an engine to say that a stage has ended whose tasks all have receipts
_set_up: set[str] = set()  # jobs that this worker has worked for


def run_on_beam(job: Job, engine: Engine, done: set[str], bars: ProgressBars) -> None:
    """Do the tasks of a job that are not done; the caller holds the lock."""
    files.delete([os.path.join(job.output, WORK, _BEGUN)])
    begin = engine.worker_timeout or (_CLOUD_BEGIN_SECONDS if "Dataflow" in engine.runner else _BEGIN_SECONDS)
    with BeamEngine(engine, job.output) as beam_engine:
        for stage in job.stages:
            tasks = sorted((task for task in stage.tasks if task.name not in done), key=lambda task: -task.units)
            if not tasks:
                continue  # an empty pipeline would only take time
            do = RunTask(stage.name, stage.work, job.output)
            work = Work(do, lock_of(job.output), engine.beam_flags)
            watch = Watch(job.output, stage, tasks, bars, begin)
            try:
                beam_engine.run(tasks, work, watch.look)
            except (FarspanError, KeyboardInterrupt, SystemExit):
                raise
            except Exception as error:
                require_begun(job.output)
                raise watch.explain(error) from error


@dataclass(frozen=True)
class Work:
    """A task on a worker of any engine, by the driver's flags for object stores.

    Without ``lock``, path and contents of the driver's claim, the job was cancelled or begun again. The versions of
    driver and worker must be equal, because code travels pickled and determines the output.
    """

    do: RunTask
    lock: tuple[str, bytes]
    flags: Sequence[str]
    versions: tuple[str, str] = _VERSIONS

    def __call__(self, task: Task) -> str:
        output = self.do.output
        self._set_up(os.path.join(output, WORK))
        self._require_lock()
        try:
            return self.do(task)
        except TaskFailed as error:
            with suppress(OSError, FarspanError):  # the disk may be full; a deleted folder is not created again
                require_begun(output)
                write_bytes(os.path.join(output, WORK, f"{task.name}.failed"), message_bytes(str(error)))
            raise

    def _set_up(self, work: str) -> None:
        if work in _set_up:
            return
        use_store_flags(self.flags)
        if self.versions != _VERSIONS:
            error = FarspanError(
                f"a worker's {sys.executable} has farspan {_VERSIONS[0]} under Python {_VERSIONS[1]}, and the driver "
                f"farspan {self.versions[0]} under Python {self.versions[1]}; install the same on both"
            )
            with suppress(OSError, FarspanError):
                write_bytes(os.path.join(work, "worker.failed"), message_bytes(str(error)))
            raise error
        self._require_lock()
        write_bytes(os.path.join(work, _BEGUN), b"")
        _set_up.add(work)

    def _require_lock(self) -> None:
        path, contents = self.lock
        if path and not (files.exists(path) and read_bytes(path) == contents):
            raise FolderGone(f"{self.do.output}: this job was cancelled, or begun again; its workers stop")


class Watch:
    """The driver's view of a stage, from the files of the job's folder.

    A line says that no task has begun, once, after ``begin`` seconds.
    """

    def __init__(self, output: str, stage: Stage, tasks: Sequence[Task], bars: ProgressBars, begin: float) -> None:
        self._work, self._stage, self._bars = os.path.join(output, WORK), stage.name, bars
        self._left = {task.name: task for task in tasks}
        self._begin: float | None = begin
        self._since = time.monotonic()  # a receipt came, or the stage began

    def look(self, reason: str) -> bool:
        """Show progress; return True if all tasks have been done for a while.

        ``reason`` is the engine's, why nothing has begun; empty if it gives none.
        """
        names = set(files.names(self._work))
        for name in [name for name in self._left if f"{name}.json" in names]:
            task = self._left.pop(name)
            self._bars.report(self._stage, name, task.units)
            self._since = time.monotonic()
        for name in sorted(names & {f"{name}.failed" for name in (*self._left, "worker")}):
            text = read_bytes(os.path.join(self._work, name)).decode(errors="replace")
            if name == "worker.failed" or is_for_good(text):
                raise FarspanError(text.strip())
        seconds = time.monotonic() - self._since
        if self._begin and (_BEGUN in names or seconds > self._begin):
            if _BEGUN not in names:
                note(
                    f"no task has begun for {seconds:.0f} s: {reason or 'the engine gives no reason'}. See its and its "
                    "workers' logs: do workers have farspan, and can they write to the output? Ctrl-C cancels the job"
                )
            self._begin = None
        return not self._left and seconds > _END_SECONDS

    def explain(self, error: Exception) -> FarspanError:
        """Return the error to show for an engine's: the message of the failed task, if there is one."""
        names = files.names(self._work)
        for name in names:
            if name.endswith(".failed") and f"{name.removesuffix('.failed')}.json" not in names:
                return FarspanError(read_bytes(os.path.join(self._work, name)).decode(errors="replace").strip())
        last = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        return FarspanError(f"the runner stopped: {last}; finished tasks are kept")
