"""File operations by path or URL, on the file system that the path names.

A plain path is on this machine's disk (``LocalDisk``); ``scheme://authority/key`` is on an object store
(``ObjectStore``), or is read by fsspec (``FsspecStore``). Paths are plain strings with ``/``. Files that a user names
are read as a whole or refused in one line: pipes and devices, because they may block for ever, and contents nested too
deeply for a parser.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, BinaryIO

from corpora.errors import FarspanError, one_line
from corpora.storage.stores.local_disk import FileState, LocalDisk, is_temporary

if TYPE_CHECKING:
    from corpora.storage.stores.object_store import ObjectStore
    from corpora.storage.stores.remote import FsspecStore

_DISK = LocalDisk()


# the arguments of ``guard_creation``
_rules: ContextVar[tuple[Callable[[], None] | None, Callable[[], None] | None]] = ContextVar(
    "rules", default=(None, None)
)


def is_local(path: str) -> bool:
    """Return True for a plain path, which can be memory-mapped and locked; False for ``scheme://``."""
    return "://" not in path


def _system(path: str) -> LocalDisk | ObjectStore | FsspecStore:
    if is_local(path):
        return _DISK
    scheme, _, rest = path.partition("://")
    root = f"{scheme}://{rest.partition('/')[0]}"
    from corpora.storage.stores.connect import CLIENTS  # local work needs none of these modules

    if scheme in CLIENTS:
        from corpora.storage.stores.object_store import ObjectStore

        return ObjectStore(root)
    from corpora.storage.stores.remote import FsspecStore

    return FsspecStore(root)


def open(path: str) -> BinaryIO:
    """Open a file for reading its raw bytes (never decompressed); seekable."""
    return _system(path).open(path)


@contextmanager
def create(path: str) -> Iterator[BinaryIO]:
    """Create a file atomically: it appears under ``path`` when the body ends, and not at all if the body raises."""
    check, taken = _rules.get()
    with _system(path).create(path, taken) as file:
        yield file
        if check:
            check()


@contextmanager
def guard_creation(check: Callable[[], None], taken: Callable[[], None] | None = None) -> Iterator[None]:
    """Set rules for the files that this thread creates inside the ``with`` block.

    ``check`` is called before a file appears; if it raises, the file does not appear. ``taken`` is called if a file of
    that name with other bytes exists; if it raises, that file stays, else it is replaced. Without ``taken``, and on
    stores that cannot create exclusively, files are replaced unchecked.
    """
    token = _rules.set((check, taken))
    try:
        yield
    finally:
        _rules.reset(token)


def exists(path: str) -> bool:
    """Return True if a file, or a local folder, exists."""
    return _system(path).exists(path)


def size(path: str) -> int:
    """Return the size of a file in bytes."""
    return _system(path).size(path)


def state(path: str) -> FileState:
    """Return the state of a file: modification time and inode, or a store's etag and modification time."""
    return _system(path).state(path)


def match(pattern: str) -> list[str]:
    """Return the files (not folders) that match a glob, sorted."""
    return _system(pattern).match(pattern)


def walk(folder: str) -> list[str]:
    """Return every file below a folder, sorted; none if the folder does not exist."""
    return _system(folder).walk(folder)


def delete(paths: list[str]) -> None:
    """Delete files of one file system; those already gone are no error."""
    if paths:
        _system(paths[0]).delete(paths)


def names(folder: str) -> list[str]:
    """Return the names of the files directly in a folder, sorted; none if the folder does not exist."""
    return _system(folder).names(folder)


def create_new(path: str, data: bytes) -> bool:
    """Create a small file unless it exists; True for exactly one of several processes.

    On local disk the folder must exist, and a reader may see the file while it is still empty. If the answer of a store
    is lost, the contents of the file decide who has created it, so ``data`` names its creator. A store that cannot
    create exclusively raises ``FarspanError``.
    """
    return _system(path).create_new(path, data)


def renew(path: str, data: bytes) -> bool:
    """Replace the contents of an existing small file by as many bytes; False if it is gone."""
    return _system(path).renew(path, data)


def sweep(folder: str) -> None:
    """Delete the temporary files of killed writers."""
    delete([path for path in walk(folder) if is_temporary(path)])


def read_bytes(path: str) -> bytes:
    """Return the contents of a file, local or remote."""
    with open(path) as file:
        return file.read()


def write_bytes(path: str, data: bytes) -> None:
    """Create a file, local or remote, that appears when it is complete."""
    with create(path) as file:
        file.write(data)


class CountingHash:
    """A write-only file object that passes bytes on and computes their count and sha256."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._digest, self.bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self.bytes += view.nbytes
        return view.nbytes

    def sha256(self) -> str:
        """Return the hex digest of all bytes so far."""
        return self._digest.hexdigest()

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return False


_CURE = "give a regular file that you may read"


def read_user_file(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a file, local or remote; not of a folder, a pipe or a device."""
    try:
        return read_bytes(os.fspath(path))
    except OSError as error:
        raise FarspanError(f"{os.fspath(path)}: {error.strerror or one_line(error)}; {_CURE}") from error


def read_user_json(path: str | os.PathLike[str], pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the JSON value in a file; ``pairs`` makes an object from its names and values, which may repeat."""
    data = read_user_file(path)
    return _parse(path, "JSON", lambda: json.loads(data, object_pairs_hook=pairs))


def read_user_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the tables in a TOML file."""
    data = read_user_file(path)
    tables: dict[str, Any] = _parse(path, "TOML", lambda: tomllib.loads(data.decode()))
    return tables


def _parse(path: str | os.PathLike[str], kind: str, parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        reason = "its brackets are nested too deep"
    except ValueError as error:
        reason = one_line(error)
    raise FarspanError(f"{os.fspath(path)}: not {kind}: {reason}")
