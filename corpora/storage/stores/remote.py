"""Files on remote stores, by Arrow's file systems: S3, GCS, Azure and HDFS natively, all others by fsspec's."""

from __future__ import annotations

import fnmatch
import io
import os
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, BinaryIO, cast

import fsspec
import pyarrow as pa
from fsspec import AbstractFileSystem
from pyarrow import fs

from corpora.errors import FarspanError
from corpora.storage.stores import credentials, s3
from corpora.storage.stores.exclusive import Unsupported, create_new, modified, publishes_whole
from corpora.storage.temporary import temporary_name

BUFFER = 1 << 20  # bytes that a small read fetches; a smaller file comes whole, with one request
_UPLOAD = 32 << 20  # bytes of a file held in memory while it is sent
_THREADS = 8  # requests at a time
_NATIVE = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_ATOMIC = ("s3", "gcs")  # file systems where an object appears when its last byte is there


def remote_store(path: str) -> RemoteStore:
    """The store that ``scheme://authority/key`` lies on.

    Raises:
        FarspanError: nothing installed knows the scheme, or the store refuses.
    """
    scheme, _, rest = path.partition("://")
    root = f"{scheme}://{rest.partition('/')[0]}"
    with _explained(path):
        system, base = (s3.client(), root[5:]) if scheme == "s3" else _connected(root)
    return RemoteStore(root, system, base)


@lru_cache(maxsize=16)
def _connected(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of ``scheme://authority``, and the path inside it of that root."""
    scheme = root.partition("://")[0]
    if scheme in _NATIVE:
        if scheme.startswith("abfs"):
            credentials.require_azure(root)
        limit = "?retry_limit_seconds=60" if scheme in ("gs", "gcs") else ""  # else a quarter of an hour
        return fs.FileSystem.from_uri(f"{root}/{limit}")
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError as error:
        reason = f"no file system {scheme}:// is installed; copy the files to local disk or to S3"
        raise FarspanError(f"{root}: {reason}") from error
    system, base = fsspec.core.url_to_fs(f"{root}/")
    return fs.PyFileSystem(fs.FSSpecHandler(system)), base


class RemoteStore:
    """The operations of ``corpora.storage.files`` below ``scheme://authority``.

    Raises:
        FarspanError: from every operation, where the store refuses or does not answer. Never ``OSError``, which readers
            take for a damaged file.
        FileNotFoundError: there is no such object.
    """

    def __init__(self, root: str, system: fs.FileSystem, base: str) -> None:
        self._root, self._system, self._base = root, system, base.rstrip("/")
        self._on_s3 = system.type_name == "s3"
        self._fsspec: Any = system.handler.fs if isinstance(system, fs.PyFileSystem) else None

    def open(self, path: str) -> BinaryIO:
        try:
            file = _RemoteFile(self, path)
        except FileNotFoundError:
            if self._on_s3:
                with _explained(path):
                    bucket = self._system.get_file_info(self._base)
                if bucket.type == fs.FileType.NotFound:
                    raise _refusal(path, "no such bucket") from None
            raise
        return io.BytesIO(file.readall()) if file.size <= BUFFER else io.BufferedReader(file, BUFFER)

    @contextmanager
    def create(self, path: str, taken: Callable[[], None] | None = None) -> Iterator[BinaryIO]:
        # Arrow's streams publish what they hold whenever they are closed or forgotten, also by a body that raises. So
        # the body writes to local disk, and the whole file goes up in a thread, which no interrupt reaches.
        with tempfile.NamedTemporaryFile(prefix="farspan-upload-") as file:
            yield cast(BinaryIO, file)
            file.flush()
            if taken is not None and not self._upload(file.name, path, replace=False):
                taken()
                self._upload(file.name, path)
            elif taken is None:
                self._upload(file.name, path)

    def exists(self, path: str) -> bool:
        with suppress(FileNotFoundError):
            return self.size(path) >= 0
        return False

    def size(self, path: str) -> int:
        return _RemoteFile(self, path).size

    def match(self, pattern: str) -> list[str]:
        """``*`` stops at a slash and ``**`` does not."""
        if self.exists(pattern):  # as it stands, whatever glob signs its name has
            return [pattern]
        prefix = re.split(r"[*?\[]", pattern)[0]
        if prefix == pattern:
            return []
        folder = prefix.rpartition("/")[0]
        below = pattern.removeprefix(folder + "/")
        found = self._list(folder, recursive="/" in below or "**" in below)
        return [path for path in found if re.fullmatch(_regex(pattern), path)]

    def walk(self, folder: str) -> list[str]:
        return self._list(folder, recursive=True)

    def delete(self, paths: list[str]) -> None:
        keys = [self._key(path) for path in paths]
        with _explained(paths[0]):
            if self._on_s3:
                s3.delete(self._base, [key.removeprefix(f"{self._base}/") for key in keys])
            else:
                with ThreadPoolExecutor(_THREADS) as pool:
                    list(pool.map(self._delete_one, keys))

    def names(self, folder: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self._list(folder, recursive=False)]

    def create_new(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with _explained(path):
            if self._on_s3:
                return s3.create_new(self._base, key.removeprefix(f"{self._base}/"), data)
            return create_new(self._system, self._root, key, data)

    def renew(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with _explained(path):
            if self._on_s3:
                return s3.renew(self._base, key.removeprefix(f"{self._base}/"), data)
        if not self.exists(path):
            return False
        with self.create(path) as file:
            file.write(data)
        return True

    def times(self, folder: str) -> dict[str, float]:
        with _explained(folder):
            return {info.base_name: modified(self._system, info) for info in self._infos(folder, recursive=False)}

    def input_file(self, path: str) -> Any:
        """Arrow's random access file; of an object on S3 it has asked for the size and no more."""
        if path.rstrip("/") == self._root:
            raise FileNotFoundError(f"{path}: a bucket, no file")
        self._forget_listings()
        with _explained(path):
            return self._system.open_input_file(self._key(path))

    def _key(self, path: str) -> str:
        """The path inside Arrow's file system."""
        return f"{self._base}/{path.removeprefix(self._root).strip('/')}".rstrip("/")

    def _list(self, folder: str, recursive: bool) -> list[str]:
        files = (info.path for info in self._infos(folder, recursive))
        return sorted(f"{self._root}/{path.removeprefix(self._base).lstrip('/')}" for path in files)

    def _infos(self, folder: str, recursive: bool) -> list[fs.FileInfo]:
        """Arrow's description of each file in a folder."""
        self._forget_listings()
        try:
            with _explained(folder):
                found = self._system.get_file_info(fs.FileSelector(self._key(folder), recursive=recursive))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info for info in found if info.type == fs.FileType.File]

    def _upload(self, local: str, path: str, replace: bool = True) -> bool:
        with _explained(path), ThreadPoolExecutor(1) as pool:
            return pool.submit(self._publish, local, self._key(path), replace).result()

    def _publish(self, local: str, key: str, replace: bool) -> bool:
        """Send a file; False if another one, with other bytes, has the name and is not to be replaced."""
        if not replace and (published := self._publish_new(local, key)) is not None:
            return published
        if self._system.type_name in _ATOMIC:
            self._send(local, key)
            return True
        temporary = temporary_name(key)
        try:
            self._system.create_dir(key.rpartition("/")[0], recursive=True)
            self._send(local, temporary)
            return self._move_over(local, temporary, key, replace)
        except BaseException:
            with suppress(Exception):
                self._delete_one(temporary)
            raise

    def _publish_new(self, local: str, key: str) -> bool | None:
        """As ``_publish``, where the store creates a whole file exclusively; None elsewhere."""
        try:
            if self._on_s3:
                made = s3.upload_new(self._base, key.removeprefix(f"{self._base}/"), local)
            elif publishes_whole(self._system):
                with open(local, "rb") as file:
                    made = create_new(self._system, self._root, key, file.read())
            else:
                return None
        except Unsupported:
            return None
        return made or self._equal(local, key)

    def _send(self, local: str, key: str) -> None:
        data = memoryview(pa.memory_map(local).read_buffer())
        with self._system.open_output_stream(key, compression=None) as stream:
            for start in range(0, len(data), _UPLOAD):
                stream.write(data[start : start + _UPLOAD])
                stream.flush()  # else Arrow would hold all of a large file in memory until it is sent

    def _move_over(self, local: str, source: str, target: str, replace: bool) -> bool:
        """Move, also on stores that never move onto a file (HDFS): an equal file is kept, another one replaced.

        Args:
            local: file with the contents of ``source``.
            replace: False to return False in place of replacing another file on such a store.
        """
        try:
            self._move(source, target)
        except OSError:
            if self._system.get_file_info(target).type != fs.FileType.File:
                raise
            equal = self._equal(local, target)
            if equal or not replace:
                self._delete_one(source)
                return equal
            aside = temporary_name(target)
            self._move(target, aside)
            try:
                self._move(source, target)
            except BaseException:
                self._move(aside, target)
                raise
            self._delete_one(aside)
        return True

    def _equal(self, local: str, key: str) -> bool:
        with open(local, "rb") as ours, self._system.open_input_file(key) as theirs:
            return os.path.getsize(local) == theirs.size() and all(
                part == theirs.read(len(part)) for part in iter(lambda: ours.read(_UPLOAD), b"")
            )

    def _move(self, source: str, target: str) -> None:
        if self._fsspec and self._fsspec.mv.__func__ is not AbstractFileSystem.mv:  # which takes names for globs
            self._fsspec.mv(source, target)
        elif self._fsspec:
            self._fsspec.cp_file(source, target)
            self._fsspec.rm_file(source)
        elif self._system.type_name == "abfs":  # moves only in accounts with hierarchical names
            self._system.copy_file(source, target)
            self._system.delete_file(source)
        else:
            self._system.move(source, target)

    def _delete_one(self, key: str) -> None:
        with suppress(FileNotFoundError):
            (self._fsspec.rm_file if self._fsspec else self._system.delete_file)(key)

    def _forget_listings(self) -> None:
        """Some of fsspec's file systems keep listings, which other processes have since outdated."""
        if self._fsspec:
            self._fsspec.invalidate_cache()


class _RemoteFile(io.RawIOBase):
    """A remote file; each read is one request."""

    def __init__(self, store: RemoteStore, path: str) -> None:
        self._store, self._path, self._position, self._reads = store, path, 0, 0
        self._file = store.input_file(path)
        with _explained(path):
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
        """Refuse a file that was replaced between reads: its parts would belong to two files, which Arrow ignores."""
        unsure = self._reads > 1 and not self.closed
        super().close()
        if unsure:
            with suppress(FileNotFoundError):
                now = self._store.input_file(self._path)
                if (now.metadata(), now.size()) != (self._file.metadata(), self.size):
                    raise FarspanError(f"{self._path}: {s3.REPLACED}")

    def _read(self, count: int) -> bytes:
        count = min(count, self.size - self._position)
        if count <= 0:
            return b""
        with _explained(self._path):
            data = self._file.read_at(count, self._position)
        self._position += count
        self._reads += 1
        return data


def _regex(pattern: str) -> str:
    """The regular expression of a glob."""
    stars = {"**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*|\*|\[!?\]?[^\]]*\])", pattern)
    return "".join(stars.get(part) or fnmatch.translate(part)[4:-3] for part in parts)  # without its (?s: and )\Z


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """One line that names the path and the cure, in place of the many kinds of error of the clients."""
    try:
        yield
    except (FarspanError, NotADirectoryError):
        raise
    except ImportError as error:
        raise FarspanError(f"{path}: {error}") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file") from error
    except Exception as error:
        raise _refusal(path, str(error) or type(error).__name__) from error


def _refusal(path: str, reason: str) -> FarspanError:
    reason = " ".join(reason.partition("dlopen(")[0].split()).rstrip(".")  # where Java was looked for: pages
    reason = textwrap.shorten(reason, 500, placeholder=" ...")
    cure = s3.cure(reason) if path.startswith("s3://") else credentials.cure(path, reason)
    return FarspanError(f"{path}: {reason}; {cure or 'finished work is kept: try again'}")
