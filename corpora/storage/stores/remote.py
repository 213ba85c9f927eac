"""Files on remote stores: what object stores and fsspec's file systems have in common."""

from __future__ import annotations

import fnmatch
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

from corpora.storage.stores.local_disk import FileState

BUFFER = 1 << 20  # bytes that a small read fetches; a smaller file is read whole, in one request
_REQUEST = 16 << 20  # bytes of a request at most
_TAIL = (
    1 << 16
)  # bytes at the end that are read together: formats keep their tables there, and read them piece by piece


@dataclass(frozen=True)
class Remote:
    """A file on a store.

    Attributes:
        path: its URL.
        size: bytes.
        modified: time of its last modification in seconds of the store's clock; None if the store keeps none.
        version: what its store calls these contents; None if it has no name for them.
    """

    path: str
    size: int
    modified: float | None = None
    version: str | None = None


class RemoteStore(ABC):
    """The operations of ``corpora.storage.files`` that read below ``scheme://authority``.

    Raises:
        FarspanError: from every operation, if the store refuses or does not answer. Never ``OSError``, which readers
            take for a damaged file.
        FileNotFoundError: there is no such object.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    @abstractmethod
    def begin(self, path: str, count: int) -> tuple[Remote, bytes]:
        """Return a file and its first ``count`` bytes."""

    @abstractmethod
    def read(self, file: Remote, start: int, stop: int) -> bytes:
        """Read a range of a file.

        Raises:
            FarspanError: its contents are not those of ``file`` any more.
        """

    @abstractmethod
    def stat(self, path: str) -> Remote:
        """Describe a file."""

    @abstractmethod
    def scan(self, folder: str, recursive: bool) -> Iterator[Remote]:
        """Yield the files in a folder; none if there is no such folder."""

    def open(self, path: str) -> BinaryIO:
        file, head = self.begin(path, BUFFER)
        if file.size <= BUFFER:
            return io.BytesIO(head)
        return io.BufferedReader(_RemoteFile(self, file, head), BUFFER)

    def exists(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            return self.size(path) >= 0
        return False

    def size(self, path: str) -> int:
        return self.stat(path).size

    def state(self, path: str) -> FileState:
        file = self.stat(path)
        return FileState(file.size, f"{file.version} {file.modified}")

    def match(self, pattern: str) -> list[str]:
        """Return the files that match a glob, in which ``*`` stops at a slash and ``**`` does not."""
        if self.exists(pattern):  # a file whose name has glob characters
            return [pattern]
        prefix = re.split(r"[*?\[]", pattern)[0]
        if prefix == pattern:
            return []
        folder = prefix.rpartition("/")[0]
        below = pattern.removeprefix(folder + "/")
        regex = re.compile(_regex(pattern))
        files = self.scan(folder, recursive="/" in below or "**" in below)
        return sorted(file.path for file in files if regex.fullmatch(file.path))

    def walk(self, folder: str) -> list[str]:
        return sorted(file.path for file in self.scan(folder, recursive=True))

    def names(self, folder: str) -> list[str]:
        return sorted(file.path.rpartition("/")[2] for file in self.scan(folder, recursive=False))


class _RemoteFile(io.RawIOBase):
    """A remote file that is read in any order; each read is one request, except in its first and last bytes."""

    def __init__(self, store: RemoteStore, file: Remote, head: bytes) -> None:
        self._store, self._file, self._position = store, file, 0
        self._kept = {0: head}  # start -> bytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        self._position = max(0, offset + start)
        return self._position

    def readall(self) -> bytes:
        data = bytearray(max(self._file.size - self._position, 0))
        start = 0
        while count := self.readinto(memoryview(data)[start:]):
            start += count
        return bytes(data)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        start = self._position
        stop = min(start + len(view), self._file.size, start + _REQUEST)
        if start >= stop:
            return 0
        tail = self._file.size - _TAIL
        if start >= tail > 0 and tail not in self._kept:
            self._kept[tail] = self._store.read(self._file, tail, self._file.size)
        kept = (part[start - first : stop - first] for first, part in self._kept.items() if first <= start)
        data = next(filter(None, kept), b"") or self._store.read(self._file, start, stop)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def _regex(pattern: str) -> str:
    """Convert a glob to a regular expression."""
    stars = {"**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*|\*|\[!?\]?[^\]]*\])", pattern)
    return "".join(stars.get(part) or fnmatch.translate(part)[4:-3] for part in parts)  # without its (?s: and )\Z
