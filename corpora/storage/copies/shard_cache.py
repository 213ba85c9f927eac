"""A bounded cache of remote shards on local disk, shared by all processes of a machine.

A shard lies in a file named by its sha256, and is compared with it when it arrives. Who maps a file holds a shared lock
on it, which ends with the mapping, or with the process. Eviction takes the file that was used longest ago, and passes
over those that are locked, so it removes nothing that is in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.copies.mirror import CACHE, cache_folder
from corpora.storage.manifest import ShardInfo

_PART = ".part"
_CHUNK = 8 << 20  # bytes of a request
_WAIT = 0.2  # seconds between two attempts to find room
_POLL = 0.02  # seconds between two looks at a lock
_PATIENCE = 120.0  # seconds that a reader waits for room before it gives up


@dataclass(frozen=True)
class ShardCache:
    """The cache in ``folder``.

    Attributes:
        size: bytes that the files in it take at most.
        folder: on local disk; None for ``shards/`` in the folder of all copies (``corpora.storage.copies.mirror``).
    """

    size: int
    folder: str | None = None

    def map(self, path: str, info: ShardInfo, patience: float = _PATIENCE) -> pa.Buffer | None:
        """The bytes of a shard, memory-mapped; fetched if they are not there.

        Args:
            path: of the remote shard.
            info: its size and checksum.
            patience: seconds to wait for room while everything is in use; 0 to return None at once.

        Raises:
            FarspanError: a damaged or missing shard; no room.
        """
        if not info.bytes:
            return pa.py_buffer(b"")
        cached, end = os.path.join(self._made(), info.sha256), time.monotonic() + patience
        while True:
            if (found := _mapped(cached)) is not None:
                return found
            if self._fetched(path, cached, info):
                continue
            if not patience:
                return None
            if time.monotonic() > end:
                raise FarspanError(
                    f"{path}: the cache in {os.path.dirname(cached)} has {self.size:,} bytes, and all of them are in "
                    "use; raise loading.cache_gib, or lower data.shuffle_shards"
                )
            time.sleep(_WAIT)

    def _fetched(self, path: str, cached: str, info: ShardInfo) -> bool:
        """Fetch a shard, or wait until another process has; False if there is no room."""
        with _locked(cached + _PART) as part:
            try:
                if not os.path.exists(cached) and self._reserve(part, info.bytes):
                    _fetch(path, part, info)
                    with self._still():
                        os.replace(cached + _PART, cached)
                    return True
            except BaseException as error:
                os.remove(cached + _PART)
                if isinstance(error, OSError):
                    raise FarspanError(
                        f"{cached}: {error.strerror or error}; make room there, or set {CACHE} to a folder with more"
                    ) from error
                raise
            os.remove(cached + _PART)
            return os.path.exists(cached)

    def _made(self) -> str:
        folder = self.folder or os.path.join(cache_folder(), "shards")
        os.makedirs(folder, exist_ok=True)
        return folder

    @contextmanager
    def _still(self) -> Iterator[None]:
        """Hold the lock under which files are sized and renamed; a scan could miss a file that is renamed during it."""
        handle = os.open(os.path.join(self._made(), ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _reserve(self, part: int, needed: int) -> bool:
        """Give the file that is to be fetched its size, after removing others as far as necessary; False: no room."""
        os.ftruncate(part, 0)
        with self._still():
            entries = sorted(_entries(self._made()))
            excess = sum(size for _, size, _ in entries) + needed - self.size
            for _, size, path in entries:
                if excess <= 0:
                    break
                excess -= size if _removed(path) else 0
            if excess > 0:
                return False
            os.ftruncate(part, needed)
            return True


def _entries(folder: str) -> Iterator[tuple[int, int, str]]:
    """Time of the last use, size and path of every file."""
    with os.scandir(folder) as found:
        for entry in found:
            with suppress(FileNotFoundError):
                status = entry.stat()
                if not entry.name.startswith("."):
                    yield status.st_mtime_ns, status.st_size, entry.path


def _mapped(path: str) -> pa.Buffer | None:
    """The file at ``path``, with a shared lock that lasts as long as the buffer; None if it is not there."""
    while True:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_at(handle, path):  # else it was evicted before it was locked
                os.utime(path, ns=(time.time_ns(), time.time_ns()))  # the kernel's own clock may stand for 4 ms
                # The mapping has a duplicate of the handle, and with it the lock.
                return pa.py_buffer(mmap.mmap(handle, 0, prot=mmap.PROT_READ))
        except FileNotFoundError:
            continue
        finally:
            os.close(handle)


def _removed(path: str) -> bool:
    """Remove a file unless a process uses or fetches it."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if not _try_lock(handle) or not _is_at(handle, path):
            return False
        os.remove(path)
        return True
    finally:
        os.close(handle)


@contextmanager
def _locked(path: str) -> Iterator[int]:
    """Open and lock the file at ``path``, which is made if necessary."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Never wait for a lock on a file that has meanwhile got its own name: whoever maps it keeps it locked.
            while not (got := _try_lock(handle)) and _is_at(handle, path):
                time.sleep(_POLL)
            if got and _is_at(handle, path):
                yield handle
                return
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _fetch(path: str, target: int, info: ShardInfo) -> None:
    """Write a remote shard into the open file, and compare it with its checksum.

    Raises:
        FarspanError: other bytes, or none.
    """
    digest, count = hashlib.sha256(), 0
    try:
        with files.open(path) as source:
            while data := source.read(_CHUNK):
                os.pwrite(target, data, count)
                digest.update(data)
                count += len(data)
    except FileNotFoundError as error:
        raise FarspanError(f"{path}: no such file, though its manifest lists it; copy the artefact again") from error
    if (count, digest.hexdigest()) != (info.bytes, info.sha256):
        raise FarspanError(
            f"{path}: {count:,} bytes with sha256 {digest.hexdigest()}, the manifest says {info.bytes:,} and "
            f"{info.sha256}; copy it again from its source, or run the job that made it into an empty folder"
        )
    os.fsync(target)
