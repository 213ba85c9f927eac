"""A job's tasks on worker processes of this machine, without Beam.

The driver holds the lock of the folder, starts the workers and watches them. They claim tasks as the processes of the
cooperative engine do.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import IO, NamedTuple

from corpora.errors import FarspanError, from_os_error
from corpora.storage import files
from pipelines.engine.beam.runner import EngineStopped, WorkerDied, search_path
from pipelines.engine.beginning import require_begun
from pipelines.engine.cooperative.interrupts import Interrupts
from pipelines.engine.cooperative.stage import JobGone, SharedStage
from pipelines.engine.job import REPEAT, Job, Stage
from pipelines.engine.paths import WORK, claims_folder
from pipelines.engine.presence.identity import WORKER, Identity
from pipelines.engine.presence.member import FAILED, Member
from pipelines.engine.tasks import RunTask, message_bytes, without_prefix

_LOOK = 0.02  # seconds between two looks at the workers
_LOOKS_AT_FOLDER = 50  # looks at the workers between two looks at the folder
_PATIENCE = 10.0  # seconds for a worker to end after SIGTERM
FAILURE = 1
"""Exit status of a worker that says why it ended."""


@dataclass(frozen=True)
class SharedTasks:
    """The tasks of a job as its driver hands them to a worker.

    Attributes:
        output: folder of the job.
        stages: with the tasks that are not done.
        lease: seconds, of the job.
        reporter: tells the driver about progress.
    """

    output: str
    stages: Sequence[Stage]
    lease: float
    reporter: Callable[..., None]


def work(tasks: SharedTasks) -> None:
    """Do tasks, stage by stage, until all are done, by this worker or others.

    Raises:
        FarspanError: a task failed, here or in another worker, or the folder is gone.
    """
    member = Member(tasks.output, Identity.own(WORKER, tasks.lease))
    default = Interrupts(0)  # handles no signal: SIGTERM ends a worker
    with member:
        try:
            for number, stage in enumerate(tasks.stages):
                run = RunTask(stage.name, stage.work, tasks.output, tasks.reporter, looked=True)
                SharedStage(tasks.output, number, stage.tasks, member, default, run).finish()
        except (JobGone, FileNotFoundError) as error:
            require_begun(tasks.output)
            work = os.path.join(tasks.output, WORK)
            raise FarspanError(f"{work}: files in it were deleted while the job ran; {REPEAT}") from error
        except FarspanError as error:
            if member.failure() is None:
                member.mark(FAILED, message_bytes(without_prefix(error)))  # the others stop as well
            raise
    member.disappear()


def share(job: Job, done: set[str], reporter: Callable[..., None], workers: int, lease: float) -> None:
    """Do the tasks of a job that are not done, on ``workers`` processes; the caller holds the lock.

    Raises:
        WorkerDied: a worker was killed or crashed, or ended in the middle.
        EngineStopped: a worker cannot be started.
        FarspanError: a worker's reason to end.
    """
    left = [replace(stage, tasks=[task for task in stage.tasks if task.name not in done]) for stage in job.stages]
    claims = os.path.join(claims_folder(job.output), "")  # of tasks, in a folder a stage, left by an earlier start
    files.delete([path for path in files.walk(claims) if "/" in path.removeprefix(claims)])
    names = [task.name for stage in left for task in stage.tasks]
    with _started(SharedTasks(job.output, left, lease, reporter), workers) as running:
        for look in count():
            if not running:
                return
            time.sleep(_LOOK)
            if look % _LOOKS_AT_FOLDER == 0:
                require_begun(job.output)
            for worker in [*running]:
                status = worker.process.poll()
                if status == FAILURE and (reason := worker.last_line()):
                    raise FarspanError(reason)
                if status or (status == 0 and _some_missing(job.output, names)):
                    require_begun(job.output)
                    raise WorkerDied.here(f"{_ended_by(status)}{_at_task(job.output, worker.process.pid)}")
                if status == 0:
                    running.remove(worker)


def _some_missing(output: str, tasks: Iterable[str]) -> bool:
    """True if a task has no receipt."""
    return not {*files.names(os.path.join(output, WORK))}.issuperset(f"{task}.json" for task in tasks)


def _ended_by(status: int) -> str:
    """The end of a worker in words, from its exit status."""
    if status == -signal.SIGKILL:
        return "was killed (out of memory is the usual reason)"
    return f"ended with status {status}" if status >= 0 else f"crashed ({signal.strsignal(-status)})"


def _at_task(output: str, worker: int) -> str:
    """The unfinished task that a worker has claimed, for a message; empty if there is none."""
    for path in files.walk(claims_folder(output)):
        task = os.path.basename(path).rpartition(".")[0]
        with suppress(FileNotFoundError):  # given back by another worker meanwhile
            owner = Identity.parse(files.read_bytes(path).decode())
            if owner and owner.kind == WORKER and owner.pid == worker and _some_missing(output, [task]):
                return f" at task {task}"
    return ""


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def last_line(self) -> str:
        """The last line that the worker wrote to its standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").strip().rpartition("\n")[2]


@contextmanager
def _started(tasks: SharedTasks, number: int) -> Iterator[list[_Worker]]:
    """Workers, which are ended in the end.

    Raises:
        EngineStopped: one cannot be started.
    """
    with ExitStack() as stack:
        data = pickle.dumps(search_path()) + pickle.dumps(tasks)
        try:
            workers = [stack.enter_context(_worker(data)) for _ in range(number)]
        except OSError as error:  # too many files or processes, or no room for temporary files
            reason = from_os_error(error, tempfile.tempdir or "TMPDIR") or error.strerror
            raise EngineStopped(
                f"a worker process cannot be started: {reason}; {REPEAT}, with fewer --workers"
            ) from error
        yield workers


@contextmanager
def _worker(data: bytes) -> Iterator[_Worker]:
    # Files, because a pipe would make each worker wait until the one before has imported what it needs.
    with tempfile.TemporaryFile() as errors:
        with tempfile.TemporaryFile() as given:
            given.write(data)
            given.seek(0)
            process = subprocess.Popen(
                # -P: the current folder is not searched first
                [sys.executable, "-P", "-m", "pipelines.engine.cooperative.worker", str(os.getpid())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path())},
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            yield _Worker(process, errors)
        finally:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
