"""A job's tasks on worker processes of this machine, without Beam.

The driver holds the lock of the folder, starts the workers and watches them. They claim tasks as the processes of the
cooperative engine do, but in a temporary folder of the machine: no store needs to create files exclusively.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import IO, NamedTuple

from corpora.errors import FarspanError, from_os_error
from corpora.storage import files
from pipelines.engine.beginning import require_begun
from pipelines.engine.job import REPEAT, Job, Stage
from pipelines.engine.options import Engine
from pipelines.engine.paths import WORK, claims_folder
from pipelines.engine.presence.identity import WORKER, Identity, is_running
from pipelines.engine.presence.member import Member
from pipelines.engine.tasks import message_bytes

_LOOK = 0.02  # seconds between two looks at the workers
_LOOKS_AT_FOLDER = 50  # looks at the workers between two looks at the folder
_PATIENCE = 10.0  # seconds for a worker to end after SIGTERM
_FAILURE = 1  # exit status of a worker that says why it ended


class WorkerDied(FarspanError):
    """A worker process was killed or crashed."""


@dataclass(frozen=True)
class SharedTasks:
    """The tasks of a job as its driver hands them to a worker.

    Attributes:
        output: folder of the job.
        place: temporary folder for the claims.
        stages: with the tasks that are not done.
        lease: seconds, of the job.
        flags: those of object stores.
        reporter: tells the driver about progress.
    """

    output: str
    place: str
    stages: Sequence[Stage]
    lease: float
    flags: Sequence[str]
    reporter: Callable[..., None]


def work(tasks: SharedTasks) -> None:
    """Do tasks, stage by stage, until all are done, by this worker or others."""
    from pipelines.engine.cooperative.interrupts import Interrupts
    from pipelines.engine.cooperative.run import take_stages
    from pipelines.engine.store_flags import use_store_flags

    use_store_flags(tasks.flags)
    with Member(tasks.place, Identity.own(WORKER, tasks.lease)) as member:
        try:
            default = Interrupts(0)  # handles no signal: SIGTERM ends a worker
            take_stages(tasks.output, tasks.place, tasks.stages, set(), member, default, tasks.reporter)
        except FileNotFoundError as error:
            require_begun(tasks.output)
            raise FarspanError(f"{error.filename or error}: was deleted while the job ran; {REPEAT}") from error
        except FarspanError as error:
            if member.failure() is None:
                member.fail(message_bytes(str(error)))  # the others stop as well
            raise


def share(job: Job, done: set[str], reporter: Callable[..., None], workers: int, engine: Engine) -> None:
    """Do the tasks of a job that are not done, on ``workers`` processes; the caller holds the lock.

    Args:
        engine: options for the workers: the lease, and flags of object stores.
    """
    left = [replace(stage, tasks=[task for task in stage.tasks if task.name not in done]) for stage in job.stages]
    names = [task.name for stage in left for task in stage.tasks]
    tasks = SharedTasks(job.output, "", left, engine.lease, engine.beam_flags, reporter)
    with _started(tasks, workers) as (place, running):
        for look in count():
            if not running:
                return
            time.sleep(_LOOK)
            if look % _LOOKS_AT_FOLDER == 0:
                require_begun(job.output)
            for worker in [*running]:
                status = worker.process.poll()
                if status == _FAILURE and (reason := worker.last_words()):
                    require_begun(job.output)
                    raise FarspanError(reason)
                if status or (status == 0 and _some_missing(job.output, names)):
                    require_begun(job.output)
                    raise WorkerDied(
                        f"a worker process {_ended_by(status)}{_at_task(job.output, place, worker.process.pid)}; "
                        "finished work is kept: run the same command again to resume, with fewer --workers if memory "
                        "is short"
                    )
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


def _at_task(output: str, place: str, worker: int) -> str:
    """The unfinished task that a worker has claimed, for a message; empty if there is none."""
    for path in files.walk(claims_folder(place)):
        task = os.path.basename(path).rpartition(".")[0]
        with suppress(FileNotFoundError):  # given back by another worker meanwhile
            owner = Identity.parse(files.read_bytes(path).decode())
            if owner and owner.pid == worker and _some_missing(output, [task]):
                return f" at task {task}"
    return ""


class _Worker(NamedTuple):
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def last_words(self) -> str:
        """Return the message that a worker wrote to its standard error after the last mark of one."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").rpartition(_REASON)[2].strip()


_REASON = "\x1e"  # before a worker's message


@contextmanager
def _started(tasks: SharedTasks, number: int) -> Iterator[tuple[str, list[_Worker]]]:
    """The folder of the claims, and workers, which are ended in the end."""
    with ExitStack() as stack:
        try:
            folder = tempfile.TemporaryDirectory(prefix="farspan-claims-", ignore_cleanup_errors=True)
            place = stack.enter_context(folder)
            data = pickle.dumps(search_path()) + pickle.dumps(replace(tasks, place=place))
            workers = [stack.enter_context(_worker(data)) for _ in range(number)]
        except OSError as error:  # too many files or processes, or no room for temporary files
            reason = from_os_error(error, tempfile.tempdir or "TMPDIR") or error.strerror
            raise FarspanError(
                f"a worker process cannot be started: {reason}; {REPEAT}, with fewer --workers"
            ) from error
        yield place, workers


def search_path() -> list[str]:
    """The module search path of this process, for a worker process.

    The current folder, which a notebook searches first, comes last: it may hold a plug-in, but also a ``secrets.py``.
    """
    folders = [path for path in sys.path if path] + [os.curdir] * ("" in sys.path)
    return [os.path.abspath(path) for path in folders]


@contextmanager
def _worker(data: bytes) -> Iterator[_Worker]:
    # Files, because a pipe would make each worker wait until the one before has imported what it needs.
    with tempfile.TemporaryFile() as errors:
        with tempfile.TemporaryFile() as given:
            given.write(data)
            given.seek(0)
            process = subprocess.Popen(
                # -P: the current folder is not searched first
                [sys.executable, "-P", "-m", "pipelines.engine.cooperative.local", str(os.getpid())],
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


def main() -> None:
    """``python -m pipelines.engine.cooperative.local PID``: a worker, with the driver's PID.

    Its standard input has the driver's search path and the tasks.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the driver
    threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    from pipelines.arrow_alone import leave_pandas_out
    from pipelines.engine.cooperative import local

    leave_pandas_out()
    try:
        given = sys.stdin.buffer  # from the process that started this one
        sys.path[:] = pickle.load(given)  # PYTHONPATH cannot have a folder with a colon
        local.work(pickle.load(given))
    except Exception as error:
        kind = "" if isinstance(error, FarspanError) else f"the runner stopped: {type(error).__name__}: "
        print(f"{_REASON}{kind}{error}", file=sys.stderr)
        sys.exit(_FAILURE)


def end_with(driver: int) -> None:
    """Exit when the driver has ended: a resumed job would otherwise run beside this worker."""
    while is_running(driver):
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main()
