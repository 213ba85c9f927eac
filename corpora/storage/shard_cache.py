"""The cache of remote shards on local disk, bounded or not, shared by all processes of a machine.

Each shard is a file named by its sha256. The checksum is compared when the file arrives, and by every process before
it first maps the file: bytes may change on disk. A process that maps a file holds a shared lock on it until the mapping
or the process ends. Eviction removes the least recently used files and skips locked ones, so no file in use is removed.
The access time of a file is that of its last use, and its modification time that of its contents.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import mmap
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from corpora.errors import FarspanError, from_os_error
from corpora.storage import files
from corpora.storage.manifest import ShardInfo

CACHE = "FARSPAN_CACHE"
_PART = ".part"
_THREADS = 8  # shards fetched at a time
_CHUNK = 8 << 20  # bytes per request
_WAIT = 0.2  # seconds between two attempts to find room
_POLL = 0.02  # seconds between two attempts to get a lock
_PATIENCE = 120.0  # seconds that a reader waits for room before it gives up

_compared: set[tuple[int | str, ...]] = set()  # files that this process has compared with their checksums


def cache_folder() -> str:
    """Return the folder of all local copies: ``$FARSPAN_CACHE``, or ``~/.cache/farspan``."""
    return os.environ.get(CACHE) or str(Path.home() / ".cache" / "farspan")


@dataclass(frozen=True)
class ShardCache:
    """The cache in ``folder``, on local disk; None for ``shards/`` in ``cache_folder()``.

    ``size``: maximum total bytes of its files; infinity for copies of whole artefacts, which stay.
    """

    size: float = math.inf
    folder: str | None = None

    @classmethod
    def of_gib(cls, gib: float | None) -> ShardCache:
        """Make the cache in the default folder with a size in GiB; None for no limit."""
        return cls() if gib is None else cls(int(gib * 2**30))

    def map(self, path: str, info: ShardInfo, patience: float = _PATIENCE) -> pa.Buffer | None:
        """Memory-map a remote shard, fetching it first if it is not in the cache.

        ``patience``: seconds to wait for room while everything is in use; 0 to return None at once.
        """
        if not info.bytes:
            return pa.py_buffer(b"")
        try:
            return self._map(path, info, patience)
        except OSError as error:  # of local disk: a store's are not
            cured = from_os_error(error, self._folder) or f"{error.filename or self._folder}: {error.strerror or error}"
            raise FarspanError(f"{cured}; or set {CACHE} to another folder") from error

    def find(self, info: ShardInfo) -> pa.Buffer | None:
        """Memory-map a shard if it is in the cache; None if not."""
        try:
            return _map_file(os.path.join(self._folder, info.sha256), info)
        except OSError:
            return None  # the folder cannot be read, so it is not used

    def fill(self, folder: str, shards: Sequence[tuple[str, ShardInfo]]) -> None:
        """Fetch the given shards, by path, of the artefact in ``folder``, unless they are in the cache."""
        target = self._existing_folder()
        missing = {info.sha256: (path, info) for path, info in shards if info.bytes}
        missing = {name: shard for name, shard in missing.items() if not os.path.exists(os.path.join(target, name))}
        needed, free = sum(info.bytes for _, info in missing.values()), shutil.disk_usage(target).free
        if needed > free:
            raise FarspanError(
                f"{folder}: its local copy needs {needed:,} bytes, {target} has {free:,} free; set {CACHE} to a folder "
                "with more space"
            )
        pool = ThreadPoolExecutor(_THREADS, "shards")
        try:
            list(pool.map(lambda shard: self.map(*shard), missing.values()))
        finally:
            pool.shutdown(cancel_futures=True)

    def _map(self, path: str, info: ShardInfo, patience: float) -> pa.Buffer | None:
        cached, end = os.path.join(self._existing_folder(), info.sha256), time.monotonic() + patience
        while True:
            if (buffer := _map_file(cached, info)) is not None:
                return buffer
            if self._fetch_once(path, cached, info):
                continue
            if not patience:
                return None
            if time.monotonic() > end:
                raise FarspanError(
                    f"{path}: the cache in {os.path.dirname(cached)} has {self.size:,} bytes, and all of them are in "
                    "use; raise cache_gib, or lower shuffle_shards or the number of workers"
                )
            time.sleep(_WAIT)

    def _fetch_once(self, path: str, cached: str, info: ShardInfo) -> bool:
        """Fetch a shard, or wait until another process has; False if there is no room."""
        with _lock_part(cached + _PART) as part:
            try:
                if not os.path.exists(cached) and self._reserve(part, info.bytes):
                    _fetch(path, part, info)
                    with self._lock():
                        os.replace(cached + _PART, cached)
                    _compared.add(_identity(os.fstat(part), info))
                    return True
            except BaseException:
                with suppress(FileNotFoundError):  # the cache was deleted meanwhile
                    os.remove(cached + _PART)
                raise
            os.remove(cached + _PART)
            return os.path.exists(cached)

    @property
    def _folder(self) -> str:
        return self.folder or os.path.join(cache_folder(), "shards")

    def _existing_folder(self) -> str:
        os.makedirs(self._folder, exist_ok=True)
        return self._folder

    def turn(self) -> AbstractContextManager[None]:
        """Wait for room for several shards alone; others that wait hold none."""
        return self._lock(".turn")

    @contextmanager
    def _lock(self, name: str = ".lock") -> Iterator[None]:
        """Hold a lock, by default that for resizing and renaming files: a scan could miss a file renamed during it."""
        handle = os.open(os.path.join(self._existing_folder(), name), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _reserve(self, part: int, needed: int) -> bool:
        """Evict files until ``needed`` bytes fit, and give the partial file that size; False if there is no room."""
        os.ftruncate(part, 0)
        with self._lock():
            entries = sorted(_entries(self._existing_folder()))
            excess = sum(size for _, size, _ in entries) + needed - self.size
            for _, size, path in entries:
                if excess <= 0:
                    break
                excess -= size if _remove_unused(path) else 0
            if excess > 0:
                return False
            os.ftruncate(part, needed)
            return True


def _entries(folder: str) -> Iterator[tuple[int, int, str]]:
    """Yield the time of last use, the size and the path of every file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat()
                if not entry.name.startswith("."):
                    yield status.st_atime_ns, status.st_size, entry.path


def _map_file(path: str, info: ShardInfo) -> pa.Buffer | None:
    """Map the file at ``path``, with a shared lock that lasts as long as the buffer; None if there is no file.

    A file with another size or checksum was damaged since it was fetched, and is removed, so that it is fetched again.
    """
    while True:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_at(handle, path):  # else it was evicted before it was locked
                status = os.fstat(handle)
                # The mapping has a duplicate of the handle, and with it the lock.
                buffer = pa.py_buffer(mmap.mmap(handle, 0, prot=mmap.PROT_READ) if status.st_size else b"")
                if _is_whole(buffer, status, info):
                    os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))  # the kernel's own clock has steps of 4 ms
                    return buffer
                os.remove(path)  # those who have mapped it keep it
        except FileNotFoundError:
            continue
        finally:
            os.close(handle)


def _is_whole(buffer: pa.Buffer, status: os.stat_result, info: ShardInfo) -> bool:
    """Return True if a file in the cache has the bytes of the shard; reads them once a process."""
    if status.st_size != info.bytes:
        return False
    if _identity(status, info) not in _compared:
        if hashlib.sha256(buffer).hexdigest() != info.sha256:
            return False
        _compared.add(_identity(status, info))
    return True


def _identity(status: os.stat_result, info: ShardInfo) -> tuple[int | str, ...]:
    """Return values that change when a file is replaced or written to."""
    return info.sha256, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _remove_unused(path: str) -> bool:
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
def _lock_part(path: str) -> Iterator[int]:
    """Open and lock the file at ``path``, creating it if necessary."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # Do not wait for a file that has been renamed meanwhile: processes that map it keep it locked.
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
    """Write a remote shard into the open file, and compare it with its checksum."""
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
