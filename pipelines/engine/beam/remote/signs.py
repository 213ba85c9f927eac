"""Signs of life of remote workers: each keeps a small file in ``_work/`` that names its current tasks.

The driver needs no connection to its workers, and no common clock: a worker is alive if its file changes.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from corpora.errors import FarspanError
from corpora.storage.files import read_bytes, write_bytes
from pipelines.engine.beam.remote.submission import require_current
from pipelines.engine.paths import WORK

SUFFIX = ".worker"
BEAT_SECONDS = 5.0


@dataclass(frozen=True)
class Sign:
    """A worker's report on itself.

    Attributes:
        worker: ``host:pid``.
        attempt: the submission that it works for.
        beat: rises while it works.
        tasks: task in hand -> its stage, and its units that are done.
        failed: why it cannot start.
    """

    worker: str
    attempt: str = ""
    beat: int = 0
    tasks: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    failed: str = ""

    def to_json(self) -> bytes:
        return json.dumps(vars(self)).encode()


def read_signs(paths: Iterable[str]) -> dict[str, Sign]:
    """Read the signs among ``paths``; path -> sign. One that is deleted meanwhile is left out."""
    found = {}
    for path in paths:
        if path.endswith(SUFFIX):
            with suppress(FileNotFoundError, TypeError, ValueError):  # of another version
                found[path] = Sign(**json.loads(read_bytes(path)))
    return found


def write_failure(output: str, reason: str) -> None:
    """Tell the driver why this process cannot work."""
    write_bytes(_path(output), Sign(_me(), failed=reason).to_json())


@dataclass(frozen=True)
class SignOfLife:
    """Reports progress in the sign of this process; takes the place of ``progress.Reporter`` on workers elsewhere."""

    output: str
    attempt: str
    seconds: float = BEAT_SECONDS

    def __call__(self, stage: str, task: str, done: int, rejects: int = 0) -> None:
        """``done``: units of the stage finished in this task so far; rejects are in its receipt."""
        _heart(self).tasks_done(stage, task, done)

    @contextmanager
    def working(self, stage: str, task: str) -> Iterator[None]:
        """Have the task in hand.

        Raises:
            FarspanError: the job was cancelled, or submitted again.
        """
        require_current(self.output, self.attempt)
        heart = _heart(self)
        heart.begin(stage, task)
        try:
            yield
        finally:
            heart.end(task)


class _Heart:
    """The sign of this process for one submission, and the thread that writes it."""

    def __init__(self, sign: SignOfLife) -> None:
        self._of, self._lock = sign, threading.Lock()
        self._tasks: dict[str, tuple[str, int]] = {}
        self._beat = 0
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()

    def begin(self, stage: str, task: str) -> None:
        with self._lock:
            first = not self._tasks
            self._tasks[task] = (stage, 0)
        if first and self._thread is None:
            self._write()  # at once: work that holds the interpreter for long would keep the thread from it
            self._thread = threading.Thread(target=self._run, name="farspan-sign", daemon=True)
            self._thread.start()
        self._begun.set()

    def tasks_done(self, stage: str, task: str, done: int) -> None:
        with self._lock:
            if task in self._tasks:
                self._tasks[task] = (stage, done)

    def end(self, task: str) -> None:
        with self._lock:
            self._tasks.pop(task, None)

    def _run(self) -> None:
        stopped = threading.Event()
        while True:
            stopped.wait(self._of.seconds)
            with self._lock:
                idle = not self._tasks
                if idle:
                    self._begun.clear()
            try:
                require_current(self._of.output, self._of.attempt)
                self._write()
            except FarspanError:
                break  # cancelled or finished: a file written now would remain in the finished artefact
            except OSError:
                continue  # of a store; the next beat may succeed
            if idle:
                self._begun.wait()  # an idle worker costs no requests
        _hearts.pop(self._of, None)

    def _write(self) -> None:
        with self._lock:
            self._beat += 1
            sign = Sign(_me(), self._of.attempt, self._beat, dict(self._tasks))
        write_bytes(_path(self._of.output), sign.to_json())


_hearts: dict[SignOfLife, _Heart] = {}
_hearts_lock = threading.Lock()


def _heart(sign: SignOfLife) -> _Heart:
    with _hearts_lock:
        return _hearts.setdefault(sign, _Heart(sign))


def _me() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _path(output: str) -> str:
    return os.path.join(output, WORK, _me().replace(":", "-").replace("/", "-") + SUFFIX)
