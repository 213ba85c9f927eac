"""Reading in separate processes, so that a file that crashes native code does not end the job.

Such a process opens no files and needs no file systems: it asks its parent for bytes. Both exchange pairs of a kind and
a value over a pipe of ``multiprocessing``. What is pickled there comes from farspan's own processes, never from a file.
"""

from __future__ import annotations

import atexit
import io
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
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from corpora.errors import FarspanError
from corpora.readers.records import CrashedReader, Range
from corpora.storage.files import Files
from corpora.storage.stores.local_disk import FileState
from corpora.storage.stores.remote import RangeFile

FILE_ERRORS = (OSError, EOFError, pa.ArrowException)
_BUFFER = 1 << 16
# signals of a process that crashed; others are sent from outside
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}


def call(function: Callable[..., Any], place: str | Range, files: Files, *arguments: Any) -> Iterator[Any]:
    """Call a function of a module with these arguments in a separate process.

    Yields:
        The parts of its result if that is an iterator, else the result.
    """
    path = place if isinstance(place, str) else place.path
    size = files.size(path)
    with _idle_process() as reader, files.open(path) as file:
        try:
            reader.pipe.send((function, place, size, arguments))
            while True:
                kind, value = reader.pipe.recv()
                if kind == "read":
                    reader.pipe.send(_bytes_or_error(file, *value))
                elif kind == "part":
                    yield value
                else:
                    break
        except (EOFError, ConnectionError) as error:
            raise _explain_end(reader.process, path) from error
    if kind == "error":
        raise value


def _bytes_or_error(file: BinaryIO, offset: int, count: int) -> bytes | OSError:
    try:
        file.seek(offset)
        return file.read(count)
    except OSError as error:
        return OSError(str(error))


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
            _answer(pipe, *pipe.recv())


def _limit_memory() -> None:
    """Limit memory, so that a file that unpacks without end gives an error."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (half if hard == resource.RLIM_INFINITY else min(half, hard), hard))


def _answer(
    pipe: Connection, function: Callable[..., Any], place: str | Range, size: int, arguments: tuple[Any, ...]
) -> None:
    try:
        result = function(place, _ParentFiles(pipe, size), *arguments)
        for part in result if isinstance(result, Iterator) else [result]:
            pipe.send(("part", part))
        end: tuple[str, Exception | None] = ("end", None)
    except FarspanError as error:
        end = "error", FarspanError(str(error))
    except FILE_ERRORS as error:
        end = "error", OSError(str(error))
    pipe.send(end)


class _ParentFiles:
    """The file of a request, for the functions that read it."""

    def __init__(self, pipe: Connection, size: int) -> None:
        self._pipe, self._size = pipe, size

    def open(self, path: str) -> BinaryIO:
        return io.BufferedReader(RangeFile(self._size, self._read), _BUFFER)

    def _read(self, start: int, stop: int) -> bytes:
        """Ask the parent for bytes."""
        self._pipe.send(("read", (start, stop - start)))
        data: bytes | OSError = self._pipe.recv()
        if isinstance(data, OSError):
            raise data
        return data

    def size(self, path: str) -> int:
        return self._size

    def state(self, path: str) -> FileState:
        return FileState(self._size, "")
