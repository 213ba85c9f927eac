"""Reading in separate processes, so that a file that crashes native code does not end the job.

Such a process sends the parts of its result, and in the end its error or None, over a pipe of ``multiprocessing``. What
is pickled there comes from farspan's own processes, never from a file.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import pyarrow as pa

from corpora.errors import FarspanError
from corpora.readers.records import CrashedReader, Range
from corpora.storage.stores import connect

FILE_ERRORS = (OSError, EOFError, pa.ArrowException)
# signals of a process that crashed; others are sent from outside
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}


def call(function: Callable[..., Any], place: str | Range, *arguments: Any) -> Iterator[Any]:
    """Call a function of a module with a file, or a range of one, and more arguments in a separate process.

    Yields the parts of its result if that is an iterator, else the result.
    """
    with _idle_process() as reader:
        try:
            reader.pipe.send((os.getcwd(), connect.s3_settings, function, place, arguments))
            kind, value = reader.pipe.recv()
            while kind == "part":
                yield value
                kind, value = reader.pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise _explain_end(reader.process, place if isinstance(place, str) else place.path) from error
    if value is not None:
        raise value


class _Reader(NamedTuple):
    process: subprocess.Popen[bytes]
    pipe: Connection

    def end(self) -> None:
        self.process.kill()
        self.pipe.close()
        self.process.wait()


_lock = threading.Lock()
_idle: list[_Reader] = []
os.register_at_fork(after_in_child=_idle.clear)  # a fork must not use its parent's processes


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()


@contextmanager
def _idle_process() -> Iterator[_Reader]:
    """Yield a process, which is used again only if its answer was read to the end."""
    with _lock:
        reader = _idle.pop() if _idle else None
    reader = reader or _start()
    try:
        yield reader
    except BaseException:
        reader.end()
        raise
    with _lock:
        _idle.append(reader)


def _start() -> _Reader:
    # multiprocessing itself would import the user's main module again
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join([top, *filter(None, [os.environ.get("PYTHONPATH")])])
    ours, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from corpora.readers.isolation import serve; serve({theirs.fileno()})"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
        )
    return _Reader(process, ours)


def _explain_end(process: subprocess.Popen[bytes], path: str) -> Exception:
    status = process.wait()
    if status < 0 and -status not in _CRASHES:
        return FarspanError(
            f"{path}: its reader was killed ({signal.Signals(-status).name}); out of memory is the usual reason: "
            "run the same command again, with fewer --workers if memory is short"
        )
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return CrashedReader(f"the reader of this file crashed ({how})")


def serve(handle: int) -> None:
    """Answer the requests from a pipe until its other end is closed: the main function of a reading process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    _limit_memory()
    with Connection(handle) as pipe, suppress(EOFError, ConnectionError):
        while True:
            folder, settings, function, place, arguments = pipe.recv()
            os.chdir(folder)
            connect.use_s3_settings(dict(settings))
            pipe.send(("end", _answer(pipe, function, place, arguments)))


def _limit_memory() -> None:
    """Limit memory, so that a file that unpacks without end gives an error."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (half if hard == resource.RLIM_INFINITY else min(half, hard), hard))


def _answer(
    pipe: Connection, function: Callable[..., Any], place: str | Range, arguments: tuple[Any, ...]
) -> Exception | None:
    """Send the parts of a function's result; return its error, if any."""
    try:
        result = function(place, *arguments)
        for part in result if isinstance(result, Iterator) else [result]:
            pipe.send(("part", part))
    except FarspanError as error:
        return error
    except FILE_ERRORS as error:
        return OSError(str(error))
    return None
