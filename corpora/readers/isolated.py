"""The reading process of ``corpora.readers.isolation``: ``python -m corpora.readers.isolated``."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
from contextlib import suppress
from typing import Any, BinaryIO, cast

from corpora.errors import FarspanError
from corpora.readers import selection
from corpora.readers.isolation import ask, encode_block, receive, send
from corpora.readers.options import ReadOptions
from corpora.readers.records import Range
from corpora.storage.stores.local_disk import FileState

_BUFFER = 1 << 16


def main() -> None:
    """Answer requests from standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    _limit_memory()
    stdin = cast(BinaryIO, io.BufferedReader(io.FileIO(0, "r")))
    stdout = cast(BinaryIO, io.BufferedWriter(io.FileIO(os.dup(1), "w")))
    os.dup2(2, 1)  # so that printing libraries do not break frames
    with suppress(EOFError, BrokenPipeError):
        while True:
            _, body = receive(stdin)
            _answer(json.loads(body), stdin, stdout)


def _limit_memory() -> None:
    """Limit memory, so that a file that unpacks without end gives an error."""
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (half if hard == resource.RLIM_INFINITY else min(half, hard), hard))


def _answer(request: dict[str, Any], stdin: BinaryIO, stdout: BinaryIO) -> None:
    files = _AskedFiles(stdin, stdout, request["size"])
    path, options = request["path"], ReadOptions(**request["options"])
    value: Any = None
    try:
        if request["call"] == "plan":
            value = selection.cuts(path, files, options, request["target_bytes"])
        elif request["call"] == "fields":
            value = selection.fields(path, files, options)
        else:
            for block in selection.blocks(Range(**request["piece"]), files, options):
                send(stdout, b"B", encode_block(block))
    except FarspanError as error:
        send(stdout, b"F", str(error).encode())
    except selection.FILE_ERRORS as error:
        send(stdout, b"X", str(error).encode())
    else:
        send(stdout, b"V", json.dumps(value).encode())


class _AskedFiles:
    """The file of a request; its bytes are requested from the parent process."""

    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, size: int) -> None:
        self._streams, self._size = (stdin, stdout), size

    def open(self, path: str) -> BinaryIO:
        return io.BufferedReader(_AskedFile(*self._streams, self._size), _BUFFER)

    def size(self, path: str) -> int:
        return self._size

    def state(self, path: str) -> FileState:
        return FileState(self._size, "")


class _AskedFile(io.RawIOBase):
    def __init__(self, stdin: BinaryIO, stdout: BinaryIO, size: int) -> None:
        self._stdin, self._stdout, self._size, self._at = stdin, stdout, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._size - self._at))
        if not count:
            return 0
        ask(self._stdout, self._at, count)
        letter, data = receive(self._stdin)
        if letter == b"E":
            raise OSError(data.decode(errors="replace"))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


if __name__ == "__main__":
    main()
