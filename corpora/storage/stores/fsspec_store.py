"""Files that fsspec's file systems read: ``hf://`` by huggingface_hub, and any other scheme."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn

import fsspec

from corpora.errors import FarspanError
from corpora.hugging_face import require_hub
from corpora.storage.stores.client_errors import explain_errors
from corpora.storage.stores.remote import BUFFER, Remote, RemoteStore


class FsspecStore(RemoteStore):
    """The operations of ``corpora.storage.files`` that read; those that write raise.

    Raises:
        FarspanError: no installed library supports the scheme, or the store refuses.
    """

    def open(self, path: str) -> BinaryIO:
        self.stat(path)  # opening a folder raises no error everywhere
        with explain_errors(path):
            return io.BufferedReader(_File(self._system(path).open(path, "rb"), path), BUFFER)

    def stat(self, path: str) -> Remote:
        with explain_errors(path):
            info = self._system(path).info(path)
            if info["type"] != "file":
                raise FileNotFoundError(path)
            return replace(self._remote(info), version=str(sorted(info.items())))

    def scan(self, folder: str, recursive: bool) -> Iterator[Remote]:
        infos: dict[str, dict[str, Any]] = {}
        with explain_errors(folder), suppress(FileNotFoundError, NotADirectoryError):
            infos = self._system(folder).find(folder, maxdepth=None if recursive else 1, detail=True)
        yield from map(self._remote, infos.values())

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

    def _remote(self, info: dict[str, Any]) -> Remote:
        base = _open(self._root)._strip_protocol(f"{self._root}/")
        key = str(info["name"]).removeprefix(base).lstrip("/")
        return Remote(f"{self._root}/{key}", int(info["size"] or 0))


class _File(io.RawIOBase):
    """A file of fsspec, with its errors in one line."""

    def __init__(self, file: Any, path: str) -> None:
        self._file, self._path = file, path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with explain_errors(self._path):
            return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        with explain_errors(self._path):
            data = self._file.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


@lru_cache(maxsize=16)
def _open(root: str) -> Any:
    scheme = root.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError as error:
        reason = f"no file system {scheme}:// is installed; copy the files to local disk or to S3"
        raise FarspanError(f"{root}: {reason}") from error
    return fsspec.core.url_to_fs(f"{root}/")[0]
