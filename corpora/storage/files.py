"""The few file operations that farspan needs, so that the same code runs on any file system.

``LocalFiles`` is this machine's disk. A pipeline brings another implementation for whatever Beam reaches (S3, GCS,
HDFS). Paths are plain strings with ``/``.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, Protocol, cast

_TEMPORARY = ".tmp-"


class Files(Protocol):
    """What readers and writers of artefacts ask of a file system."""

    def open(self, path: str) -> BinaryIO:
        """Open for reading, undecoded and never decompressed; seekable."""

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a whole file: it appears under ``path`` when the body ends well, and not at all when it raises."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """Bytes."""

    def match(self, pattern: str) -> list[str]:
        """Files (not folders) that match a glob, sorted."""

    def walk(self, folder: str) -> list[str]:
        """Every file below a folder, sorted; none when it does not exist."""

    def delete(self, paths: list[str]) -> None:
        """Delete files; those already gone are no error."""


class DanglingLink(FileNotFoundError):
    """A symbolic link that leads nowhere, or in a circle."""


class NotAFile(OSError):
    """A pipe, socket or device, which has no size and may have a reader wait for ever."""


class LocalFiles:
    """This machine's disk. Files appear atomically: temporary name, fsync, rename."""

    def open(self, path: str) -> BinaryIO:
        return open(path, "rb", opener=_open_regular)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        temporary = temporary_name(path)
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            self.delete([temporary])
            if error.errno and error.filename in (None, temporary):  # a full disk is told of by number alone
                raise OSError(error.errno, error.strerror, path) from error
            raise
        except BaseException:
            self.delete([temporary])
            raise

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        try:
            status = os.stat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP) and os.path.islink(path):
                raise DanglingLink(f"{path}: a link to {os.readlink(path)!r}, which leads nowhere") from error
            raise
        _check_regular(path, status.st_mode)
        return status.st_size

    def match(self, pattern: str) -> list[str]:
        return sorted(path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path))

    def walk(self, folder: str) -> list[str]:
        return sorted(os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)

    def delete(self, paths: list[str]) -> None:
        for path in paths:
            if os.path.exists(path):
                os.remove(path)


def require_regular(path: str) -> None:
    """Let only a regular file be opened: a named pipe would be waited for without end.

    Raises:
        OSError: it is none, or is not there.
    """
    _check_regular(path, os.stat(path).st_mode)


def _open_regular(path: str, flags: int) -> int:
    number = os.open(path, flags | os.O_NONBLOCK)  # else a pipe would wait for someone to write into it
    try:
        _check_regular(path, os.fstat(number).st_mode)
    except BaseException:
        os.close(number)
        raise
    return number


def _check_regular(path: str, mode: int) -> None:
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a folder",
    }
    if kind := kinds.get(stat.S_IFMT(mode)):
        error = NotAFile(f"{path}: {kind}, not a regular file")
        error.strerror = f"{kind}, not a regular file"  # for messages that name the file themselves
        raise error


def temporary_name(path: str) -> str:
    """A name beside ``path`` that no other writer uses; ``sweep`` recognises it."""
    return f"{path}{_TEMPORARY}{uuid.uuid4().hex[:12]}"


def sweep(files: Files, folder: str) -> None:
    """Delete what writers that were killed left behind."""
    files.delete([path for path in files.walk(folder) if _TEMPORARY in os.path.basename(path)])


def read_bytes(files: Files, path: str) -> bytes:
    with files.open(path) as file:
        return file.read()


def write_bytes(files: Files, path: str, data: bytes) -> None:
    with files.create(path) as file:
        file.write(data)


class CountingHash:
    """A write-only file object that passes bytes on and keeps their count and sha256."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        view = memoryview(cast(bytes, data)).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self.bytes += view.nbytes
        return view.nbytes

    def sha256(self) -> str:
        """Hex, of all bytes so far."""
        return self._digest.hexdigest()

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return False
