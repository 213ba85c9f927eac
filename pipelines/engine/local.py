"""A job's tasks on worker processes of this machine, without Beam.

The driver holds the lock of the folder and hands each worker one task after another through a pipe, from which it also
reads progress, failures and the worker's end. A worker ends with its driver, whose pipes the system then closes.
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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import IO, Any

from corpora.errors import FarspanError, from_os_error
from corpora.reporting import note, send_notes
from pipelines.engine.folder import require_begun
from pipelines.engine.job import REPEAT, Job, Task
from pipelines.engine.options import Engine, use_store_flags
from pipelines.engine.tasks import FAILURES, RunTask, TaskFailed, note_retry
from pipelines.environment import leave_pandas_out

_LOOK = 1.0  # seconds between two looks at the folder
_PATIENCE = 10.0  # seconds for a worker to end after SIGTERM


@dataclass(eq=False)
class _Worker:
    """A worker process, as its driver sees it.

    It answers through ``pipe`` with pairs of a kind and a value, and prints to ``errors``. It is ``ready`` once it has
    started or done its last task.
    """

    process: subprocess.Popen[bytes]
    pipe: Connection
    errors: IO[bytes]
    task: Task | None = None
    ready: bool = False

    def death(self) -> str:
        """Describe the end of the process, and its last words if it said why."""
        try:
            status = self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if status == -signal.SIGKILL:
            return "was killed (out of memory is the usual reason)"
        if status < 0:
            return f"crashed ({signal.strsignal(-status)})"
        self.errors.seek(0)
        words = self.errors.read().decode(errors="replace").strip().rpartition("\n")[2] if status else ""
        return f"ended with status {status}" + (f" ({words})" if words else "")


def run_on_workers(job: Job, done: set[str], report: Callable[..., None], number: int, engine: Engine) -> None:
    """Do the tasks of a job that are not done, on a number of processes; the caller holds the lock."""
    runs = {stage.name: RunTask(stage.name, stage.work, job.output) for stage in job.stages}
    with _start_workers(number, engine.beam_flags, pickle.dumps(runs)) as workers:
        for stage in job.stages:
            tasks = [task for task in stage.tasks if task.name not in done]
            _Driver(job.output, stage.name, tasks, workers, report).finish()


class _Driver:
    """A stage that is shared by workers: the largest tasks first, one at a time for each worker."""

    def __init__(
        self, output: str, stage: str, tasks: Sequence[Task], workers: Sequence[_Worker], report: Callable[..., None]
    ) -> None:
        self._output, self._stage = output, stage
        self._waiting = sorted(tasks, key=lambda task: -task.units)
        self._workers, self._report = workers, report
        self._failures: Counter[str] = Counter()
        self._failed_by: dict[str, _Worker] = {}  # task -> the last worker that failed with it
        self._notes: set[str] = set()

    def finish(self) -> None:
        """Hand out tasks until all are done."""
        looked = time.monotonic()
        while self._waiting or any(worker.task for worker in self._workers):
            for worker in self._workers:
                if worker.ready:
                    self._hand_out(worker)
            answering = wait([worker.pipe for worker in self._workers], _LOOK)
            for worker in self._workers:
                if worker.pipe in answering:
                    self._receive(worker)
                elif worker.process.poll() is not None and not worker.pipe.poll():  # a child of it has the pipe open
                    self._end(worker)
            if time.monotonic() - looked >= _LOOK:
                require_begun(self._output)
                looked = time.monotonic()

    def _hand_out(self, worker: _Worker) -> None:
        """Send a task to an idle worker, but not one with which it has just failed."""
        task = next((task for task in self._waiting if self._failed_by.get(task.name) is not worker), None)
        if task is None:
            return
        self._waiting.remove(task)
        worker.task, worker.ready = task, False
        try:
            worker.pipe.send((self._stage, task))
        except ConnectionError:
            self._end(worker)

    def _receive(self, worker: _Worker) -> None:
        """Take a worker's message."""
        try:
            kind, value = worker.pipe.recv()
        except (EOFError, ConnectionError):
            self._end(worker)
        if kind == "progress":
            self._report(*value)
        elif kind == "note":
            self._note(*value)
        elif kind == "stopped":
            require_begun(self._output)
            raise FarspanError(value)
        else:
            task, worker.task, worker.ready = worker.task, None, True
            if kind == "failed" and task is not None:
                self._pass_on(worker, task, value)

    def _note(self, text: str, event: str, values: Mapping[str, Any]) -> None:
        """Print a worker's note, unless another worker has had the same one."""
        if text not in self._notes:
            note(text, event, **values)
        self._notes.add(text)

    def _pass_on(self, worker: _Worker, task: Task, error: TaskFailed) -> None:
        """Have another worker do a task that failed by the store or the machine, but not more often than that helps."""
        self._failures[task.name] += 1
        if error.for_good or self._failures[task.name] == FAILURES:
            raise error
        note_retry(error)
        self._failed_by[task.name] = worker
        self._waiting.append(task)

    def _end(self, worker: _Worker) -> None:
        require_begun(self._output)
        place = f" at task {worker.task.name}" if worker.task else ""
        raise FarspanError(
            f"a worker process {worker.death()}{place}; finished work is kept: run the same command again to resume, "
            "with fewer --workers if memory is short"
        )


@contextmanager
def _start_workers(number: int, flags: Sequence[str], runs: bytes) -> Iterator[list[_Worker]]:
    """Start workers, which are ended in the end."""
    with ExitStack() as stack:
        try:
            workers = [stack.enter_context(_start_worker(index)) for index in range(number)]
            for worker in workers:  # once all have started: what does not fit into a pipe waits for its reader
                worker.pipe.send((search_path(), flags, runs))
        except OSError as error:  # too many files or processes, or no room for temporary files
            reason = from_os_error(error, tempfile.tempdir or "TMPDIR") or error.strerror
            raise FarspanError(
                f"a worker process cannot be started: {reason}; {REPEAT}, with fewer --workers"
            ) from error
        yield workers


@contextmanager
def _start_worker(index: int) -> Iterator[_Worker]:
    # not by multiprocessing, which would import the user's main module again
    with tempfile.TemporaryFile() as errors:
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                # -P: the current folder is not searched first
                [sys.executable, "-P", "-m", "pipelines.engine.local", str(theirs.fileno()), str(os.getpid())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path()), "FARSPAN_WORKER": str(index)},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
            )
        with process, ours:
            try:
                yield _Worker(process, ours, errors)
            finally:
                process.terminate()
                try:
                    process.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()


def search_path() -> list[str]:
    """The module search path of this process, for a worker process.

    The current folder, which a notebook searches first, comes last: it may hold a plug-in, but also a ``secrets.py``.
    """
    folders = [path for path in sys.path if path] + [os.curdir] * ("" in sys.path)
    return [os.path.abspath(path) for path in folders]


def main() -> None:
    """``python -m pipelines.engine.local HANDLE PID``: a worker, with its pipe and the PID of its driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the driver
    threading.Thread(target=_end_with_driver, daemon=True).start()
    leave_pandas_out()
    with Connection(int(sys.argv[1])) as pipe:
        try:
            sys.path[:], flags, runs = pipe.recv()  # PYTHONPATH cannot have a folder with a colon
            use_store_flags(flags)
            work(pipe, pickle.loads(runs))
        except Exception as error:
            kind = "" if isinstance(error, FarspanError) else f"the runner stopped: {type(error).__name__}: "
            pipe.send(("stopped", f"{kind}{error}"))


def work(pipe: Connection, runs: Mapping[str, RunTask]) -> None:
    """Do the tasks that the driver sends, each with the name of its stage, until it ends this process."""
    lock = threading.Lock()  # a task may report from several threads

    def answer(kind: str, value: Any) -> None:
        with lock:
            pipe.send((kind, value))

    send_notes(lambda *message: answer("note", message))
    answer("ready", None)
    while True:
        stage, task = pipe.recv()
        try:
            replace(runs[stage], report=lambda *report: answer("progress", report))(task)
            answer("done", None)
        except TaskFailed as error:
            answer("failed", error)


def _end_with_driver() -> None:
    """Exit when the driver has ended: a resumed job would otherwise run beside this worker."""
    os.read(sys.stdin.fileno(), 1)  # returns once the system closes the driver's end
    os._exit(1)


if __name__ == "__main__":
    main()
