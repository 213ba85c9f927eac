"""Files on remote stores: what all have in common, and those that fsspec reads (``hf://``, and any other scheme)."""

from __future__ import annotations

import fnmatch
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn

from corpora.errors import FarspanError
from corpora.storage.stores.client_errors import explain_errors
from corpora.storage.stores.connect import require_hub
from corpora.storage.stores.local_disk import FileState

BUFFER = 1 << 20  # bytes that a small read fetches; a smaller file is read whole, in one request


class RangeFile(io.RawIOBase):
    """A file of ``size`` bytes, read in any order; ``read(start, stop)`` returns at least the first of these bytes."""

    def __init__(self, size: int, read: Callable[[int, int], bytes]) -> None:
        self._size, self._read, self._position = size, read, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, offset + start)
        return self._position

    def readall(self) -> bytes:
        data = bytearray(max(self._size - self._position, 0))
        start = 0
        while count := self.readinto(memoryview(data)[start:]):
            start += count
        return bytes(data)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        start, stop = self._position, min(self._position + len(view), self._size)
        if start >= stop:
            return 0
        data = self._read(start, stop)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


class RemoteStore(ABC):
    """The operations of ``corpora.storage.files`` that read below ``scheme://authority``.

    A store that refuses or does not answer raises ``FarspanError``, never ``OSError``, which readers take for a damaged
    file; a missing object raises ``FileNotFoundError``.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    @abstractmethod
    def open(self, path: str) -> BinaryIO:
        """Open a file for reading."""

    @abstractmethod
    def state(self, path: str) -> FileState:
        """Return the state of a file."""

    @abstractmethod
    def list_paths(self, folder: str, recursive: bool) -> list[str]:
        """Return the paths of the files in a folder; none if there is no such folder."""

    def exists(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            return self.size(path) >= 0
        return False

    def size(self, path: str) -> int:
        return self.state(path).size

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
        return sorted(filter(regex.fullmatch, self.list_paths(folder, recursive="/" in below or "**" in below)))

    def walk(self, folder: str) -> list[str]:
        return sorted(self.list_paths(folder, recursive=True))

    def names(self, folder: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.list_paths(folder, recursive=False))


def _regex(pattern: str) -> str:
    """Convert a glob to a regular expression."""
    stars = {"**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*|\*|\[!?\]?[^\]]*\])", pattern)
    return "".join(stars.get(part) or fnmatch.translate(part)[4:-3] for part in parts)  # without its (?s: and )\Z


class FsspecStore(RemoteStore):
    """The operations of ``corpora.storage.files`` that read; those that write raise ``FarspanError``."""

    def open(self, path: str) -> BinaryIO:
        size = self.size(path)  # opening a folder raises no error everywhere
        with explain_errors(path):
            file = self._system(path).open(path, "rb")
            if not size:  # or unknown, as of a web page
                return io.BytesIO(file.read())

        def read(start: int, stop: int) -> bytes:
            with explain_errors(path):
                file.seek(start)
                return bytes(file.read(stop - start))

        return io.BufferedReader(RangeFile(size, read), BUFFER)

    def state(self, path: str) -> FileState:
        with explain_errors(path):
            info = self._system(path).info(path)
            if info["type"] != "file":
                raise FileNotFoundError(path)
            return FileState(int(info["size"] or 0), str(sorted(info.items())))

    def list_paths(self, folder: str, recursive: bool) -> list[str]:
        keys: list[str] = []
        with explain_errors(folder), suppress(FileNotFoundError, NotADirectoryError):
            keys = self._system(folder).find(folder, maxdepth=None if recursive else 1)
        base = _open(self._root)._strip_protocol(f"{self._root}/")
        return [f"{self._root}/{key.removeprefix(base).lstrip('/')}" for key in keys]

    def _refuse(self, path: str | list[str], *_: object) -> NoReturn:
        path, scheme = path if isinstance(path, str) else path[0], self._root.partition("://")[0]
        raise FarspanError(f"{path}: {scheme}:// is for reading; write to a folder on disk, s3://, gs:// or abfs://")

    create = create_new = renew = delete = _refuse

    def _system(self, path: str) -> Any:
        """Return the file system, without the listings that it may keep: other processes change the files."""
        if path.startswith("hf://"):
            require_hub(path)
        system = _open(self._root)
        system.invalidate_cache()
        return system


@lru_cache(maxsize=16)
def _open(root: str) -> Any:
    import fsspec  # slow to import, and object stores do not need it

    scheme = root.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError as error:
        reason = f"no file system {scheme}:// is installed; copy the files to local disk or to S3"
        raise FarspanError(f"{root}: {reason}") from error
    return fsspec.core.url_to_fs(f"{root}/")[0]
