"""Files on remote stores through Arrow's file systems: its own for S3, GCS, Azure and HDFS, fsspec's for others."""

from __future__ import annotations

import fnmatch
import io
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, BinaryIO, cast

import fsspec
from pyarrow import fs

from corpora.errors import FarspanError
from corpora.storage.stores import credentials, s3
from corpora.storage.stores.client_errors import explained, refusal
from corpora.storage.stores.exclusive import create_new, fsspec_below, modified
from corpora.storage.stores.local_disk import FileState
from corpora.storage.stores.publishing import Publisher
from corpora.storage.stores.remote_file import RemoteFile

BUFFER = 1 << 20  # bytes that a small read fetches; a smaller file is read whole, in one request
_THREADS = 8  # requests at a time
_NATIVE = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def remote_store(path: str) -> RemoteStore:
    """Return the store of ``scheme://authority/key``.

    Raises:
        FarspanError: no installed library supports the scheme, or the store refuses.
    """
    scheme, _, rest = path.partition("://")
    root = f"{scheme}://{rest.partition('/')[0]}"
    with explained(path):
        system, base = (s3.client(), root[5:]) if scheme == "s3" else _connected(root)
    return RemoteStore(root, system, base)


@lru_cache(maxsize=16)
def _connected(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of ``scheme://authority``, and the path of that root inside it."""
    scheme = root.partition("://")[0]
    if scheme in _NATIVE:
        if scheme.startswith("abfs"):
            credentials.require_azure(root)
        limit = "?retry_limit_seconds=60" if scheme in ("gs", "gcs") else ""  # its default is 15 minutes
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
        FarspanError: from every operation, if the store refuses or does not answer. Never ``OSError``, which readers
            take for a damaged file.
        FileNotFoundError: there is no such object.
    """

    def __init__(self, root: str, system: fs.FileSystem, base: str) -> None:
        self._root, self._system, self._base = root, system, base.rstrip("/")
        self._on_s3 = system.type_name == "s3"
        self._publisher = Publisher(system, root)

    def open(self, path: str) -> BinaryIO:
        try:
            file = RemoteFile(self.input_file, path)
        except FileNotFoundError:
            if self._on_s3:
                with explained(path):
                    bucket = self._system.get_file_info(self._base)
                if bucket.type == fs.FileType.NotFound:
                    raise refusal(path, "no such bucket") from None
            raise
        return io.BytesIO(file.readall()) if file.size <= BUFFER else io.BufferedReader(file, BUFFER)

    @contextmanager
    def create(self, path: str, taken: Callable[[], None] | None = None) -> Iterator[BinaryIO]:
        # Closing or losing one of Arrow's streams publishes what was written to it, even if the body raised. So the
        # body writes to local disk, and a thread, which no interrupt reaches, uploads the whole file.
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
        return RemoteFile(self.input_file, path).size

    def state(self, path: str) -> FileState:
        file = self.input_file(path)
        with explained(path):
            store = fsspec_below(self._system)
            version = store.ukey(self._key(path)) if store is not None else sorted((file.metadata() or {}).items())
            return FileState(file.size(), str(version))

    def match(self, pattern: str) -> list[str]:
        """Return the files that match a glob, in which ``*`` stops at a slash and ``**`` does not."""
        if self.exists(pattern):  # a file whose name has glob characters
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
        with explained(paths[0]):
            if self._on_s3:
                s3.delete(self._base, [key.removeprefix(f"{self._base}/") for key in keys])
            else:
                with ThreadPoolExecutor(_THREADS) as pool:
                    list(pool.map(self._publisher.delete, keys))

    def names(self, folder: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self._list(folder, recursive=False)]

    def create_new(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with explained(path):
            if self._on_s3:
                return s3.create_new(self._base, key.removeprefix(f"{self._base}/"), data)
            return create_new(self._system, self._root, key, data)

    def renew(self, path: str, data: bytes) -> bool:
        key = self._key(path)
        with explained(path):
            if self._on_s3:
                return s3.renew(self._base, key.removeprefix(f"{self._base}/"), data)
        if not self.exists(path):
            return False
        with self.create(path) as file:
            file.write(data)
        return True

    def times(self, folder: str) -> dict[str, float]:
        with explained(folder):
            return {info.base_name: modified(self._system, info) for info in self._infos(folder, recursive=False)}

    def input_file(self, path: str) -> Any:
        """Open Arrow's random access file, which for an object on S3 requests the size only."""
        if path.rstrip("/") == self._root:
            raise FileNotFoundError(f"{path}: a bucket, no file")
        self._forget_listings()
        with explained(path):
            return self._system.open_input_file(self._key(path))

    def _key(self, path: str) -> str:
        """Return the path inside Arrow's file system."""
        return f"{self._base}/{path.removeprefix(self._root).strip('/')}".rstrip("/")

    def _list(self, folder: str, recursive: bool) -> list[str]:
        files = (info.path for info in self._infos(folder, recursive))
        return sorted(f"{self._root}/{path.removeprefix(self._base).lstrip('/')}" for path in files)

    def _infos(self, folder: str, recursive: bool) -> list[fs.FileInfo]:
        """Return Arrow's description of each file in a folder."""
        self._forget_listings()
        try:
            with explained(folder):
                found = self._system.get_file_info(fs.FileSelector(self._key(folder), recursive=recursive))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info for info in found if info.type == fs.FileType.File]

    def _upload(self, local: str, path: str, replace: bool = True) -> bool:
        with explained(path), ThreadPoolExecutor(1) as pool:
            return pool.submit(self._publisher.publish, local, self._key(path), replace).result()

    def _forget_listings(self) -> None:
        """Clear the listings that some of fsspec's file systems cache: other processes change the files."""
        if (store := fsspec_below(self._system)) is not None:
            store.invalidate_cache()


def _regex(pattern: str) -> str:
    """Convert a glob to a regular expression."""
    stars = {"**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*|\*|\[!?\]?[^\]]*\])", pattern)
    return "".join(stars.get(part) or fnmatch.translate(part)[4:-3] for part in parts)  # without its (?s: and )\Z
