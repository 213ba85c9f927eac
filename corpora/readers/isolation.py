"""Isolation of native readers in separate processes, so that a file that crashes one does not end the job.

Such a process opens no files and needs no file systems: it requests bytes from its parent. Both sides send frames of a
letter, a length and a body:

=====  ==============  ====================================================
`C`    to the process  a request, JSON: ``call``, ``path``, ``size`` and more
`D`    to the process  bytes of the file
`E`    to the process  the reason why they cannot be read
`R`    from it         offset and number of requested bytes
`B`    from it         a block of records, JSON
`V`    from it         the end of the answer, JSON
`F`    from it         the message of a ``FarspanError``
`X`    from it         the reason why the file cannot be planned or inspected
=====  ==============  ====================================================
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, BinaryIO

from corpora.errors import FarspanError
from corpora.readers.options import ReadOptions
from corpora.readers.records import CrashedReader, Cut, Range, RecordBlock, Reject
from corpora.storage.files import Files

_HEAD = struct.Struct("<cQ")
_READ = struct.Struct("<QQ")
# signals of a process that crashed; others are sent from outside
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}


def plan(path: str, files: Files, options: ReadOptions, target_bytes: int) -> list[Cut]:
    """Split a file by its format's ``plan``.

    Raises:
        CrashedReader: the process crashed.
        FarspanError: as by the format's ``plan``.
    """
    values = _value("plan", path, files, {"options": asdict(options), "target_bytes": target_bytes})
    return [Cut(*cut) for cut in values]


def fields(path: str, files: Files, options: ReadOptions) -> dict[str, int]:
    """Return the fields of a file by its format's ``fields``.

    Raises:
        CrashedReader: the process crashed.
    """
    return dict(_value("fields", path, files, {"options": asdict(options)}))


def read(piece: Range, files: Files, options: ReadOptions) -> Iterator[RecordBlock]:
    """Read the blocks of a range; they contain damage as rejects.

    Raises:
        CrashedReader: the process crashed; blocks yielded before are valid.
    """
    for letter, body in _answer("read", piece.path, files, {"options": asdict(options), "piece": asdict(piece)}):
        if letter == b"B":
            values = json.loads(body)
            rejects = [
                Reject(path, key, reason, raw.encode("latin-1"), detail)
                for path, key, reason, raw, detail in values.pop("rejects")
            ]
            yield RecordBlock(**values, rejects=rejects)


def encode_block(block: RecordBlock) -> bytes:
    """Encode a block as JSON."""
    rejects = [(one.path, one.key, one.reason, one.raw.decode("latin-1"), one.detail) for one in block.rejects]
    names = ("texts", "keys", "ids", "clusters", "filtered", "position", "damaged", "lost", "titles")
    values = {name: getattr(block, name) for name in names}
    return json.dumps({**values, "rejects": rejects}, ensure_ascii=False).encode()


def send(stream: BinaryIO, letter: bytes, body: bytes) -> None:
    """Write a frame."""
    stream.write(_HEAD.pack(letter, len(body)) + body)
    stream.flush()


def receive(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Read a frame.

    Raises:
        EOFError: the other side is gone.
    """
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError("the other process ended")
    letter, size = _HEAD.unpack(head)
    body = stream.read(size)
    if len(body) < size:
        raise EOFError("the other process ended")
    return letter, body


def ask(stream: BinaryIO, offset: int, count: int) -> None:
    """Ask for bytes of the file."""
    send(stream, b"R", _READ.pack(offset, count))


class _Processes:
    """Idle reading processes; each answers one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._owner = os.getpid()

    @contextmanager
    def one(self) -> Iterator[subprocess.Popen[bytes]]:
        """Yield a process, which is used again only if its answer was read to the end."""
        with self._lock:
            if self._owner != os.getpid():  # a fork must not use its parent's processes
                self._idle, self._owner = [], os.getpid()
            process = self._idle.pop() if self._idle else None
        process = process or _start()
        try:
            yield process
        except BaseException:
            _end(process)
            raise
        with self._lock:
            self._idle.append(process)

    def end(self) -> None:
        if self._owner == os.getpid():
            for process in self._idle:
                _end(process)


_PROCESSES = _Processes()
atexit.register(_PROCESSES.end)


def _start() -> subprocess.Popen[bytes]:
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.pathsep.join([top, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "corpora.readers.isolated"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout):
        if stream:
            with suppress(OSError):
                stream.close()
    process.wait()


def _value(call: str, path: str, files: Files, request: dict[str, Any]) -> Any:
    for letter, body in _answer(call, path, files, request):
        if letter == b"V":
            return json.loads(body)
    raise AssertionError("an answer ends with its value")


def _answer(call: str, path: str, files: Files, request: dict[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the frames ``B`` and ``V`` of an answer, and serve its requests for bytes."""
    size = files.size(path)
    with _PROCESSES.one() as process, files.open(path) as file:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin: Any = process.stdin
        stdout: Any = process.stdout
        try:
            send(stdin, b"C", json.dumps({**request, "call": call, "path": path, "size": size}).encode())
            while True:
                letter, body = receive(stdout)
                if letter == b"R":
                    offset, count = _READ.unpack(body)
                    try:
                        file.seek(offset)
                        send(stdin, b"D", file.read(count))
                    except BrokenPipeError:
                        raise
                    except OSError as error:
                        send(stdin, b"E", str(error).encode())
                elif letter == b"B":
                    yield letter, body
                else:
                    break
        except (EOFError, BrokenPipeError) as error:
            raise _ended(process, path) from error
    if letter == b"F":
        raise FarspanError(body.decode())
    if letter == b"X":
        raise OSError(body.decode())
    yield letter, body


def _ended(process: subprocess.Popen[bytes], path: str) -> Exception:
    status = process.wait()
    if status < 0 and -status not in _CRASHES:
        return FarspanError(
            f"{path}: its reader was killed ({signal.Signals(-status).name}); out of memory is the usual reason: "
            "run the same command again, with fewer --workers if memory is short"
        )
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    return CrashedReader(f"the reader of this file crashed ({how})")
