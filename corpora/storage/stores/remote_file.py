"""Reading of a remote file in any order."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from corpora.errors import FarspanError
from corpora.storage.stores import s3
from corpora.storage.stores.client_errors import explained


class RemoteFile(io.RawIOBase):
    """A remote file; each read is one request."""

    def __init__(self, open_input: Callable[[str], Any], path: str) -> None:
        """
        Args:
            open_input: path -> Arrow's random access file.

        Raises:
            FarspanError: the store refuses or does not answer.
            FileNotFoundError: there is no such file.
        """
        self._open_input, self._path, self._position, self._reads = open_input, path, 0, 0
        self._file = open_input(path)
        with explained(path):
            self.size: int = self._file.size()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = max(0, offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence])
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._read(self.size)

    def close(self) -> None:
        """Close the file.

        Raises:
            FarspanError: the file was replaced between two reads, so what was read belongs to two files.
        """
        several = self._reads > 1 and not self.closed
        super().close()
        if several:
            with suppress(FileNotFoundError):
                now = self._open_input(self._path)
                if (now.metadata(), now.size()) != (self._file.metadata(), self.size):
                    raise FarspanError(f"{self._path}: {s3.REPLACED}")

    def _read(self, count: int) -> bytes:
        count = min(count, self.size - self._position)
        if count <= 0:
            return b""
        with explained(self._path):
            data = self._file.read_at(count, self._position)
        self._position += count
        self._reads += 1
        return data
