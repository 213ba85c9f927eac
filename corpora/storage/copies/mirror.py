"""Local copies of remote artefacts for training, which reads rows in random order from memory-mapped files."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import CountingHash, read_bytes, write_bytes
from corpora.storage.manifest import FileInfo
from corpora.storage.manifest_file import NAME, list_files, manifest_sha256, read_manifest

CACHE = "FARSPAN_CACHE"


def cache_folder() -> str:
    """Return the folder of all local copies: ``$FARSPAN_CACHE``, or ``~/.cache/farspan``."""
    return os.environ.get(CACHE) or str(Path.home() / ".cache" / "farspan")


def mirrored(folder: str) -> str:
    """Return the folder of a local copy of an artefact, made if there is none yet; a local artefact's own folder.

    Copies are in ``$FARSPAN_CACHE`` (``~/.cache/farspan`` by default), each in a folder named by the sha256 of its
    manifest, and are shared by all processes and runs of the machine. Each file is compared with its checksum while it
    is copied; the next call completes an interrupted copy. Copies are never deleted.

    Raises:
        FarspanError: no finished artefact there, a damaged file, or too little space.
    """
    if files.is_local(folder):
        return folder
    manifest = read_manifest(folder)
    shards = {f"shards/{shard.name}": FileInfo(shard.bytes, shard.sha256) for shard in manifest.shards}
    copy = os.path.join(cache_folder(), manifest_sha256(folder))
    with _alone(copy):
        if not os.path.exists(os.path.join(copy, NAME)):
            files.sweep(copy)
            listed = {**(manifest.files or list_files(folder)), **shards}
            wanted = {name: info for name, info in listed.items() if not _is_there(os.path.join(copy, name), info)}
            _check_space(folder, copy, sum(info.bytes for info in wanted.values()))
            for name, info in wanted.items():
                _copy(os.path.join(folder, name), os.path.join(copy, name), info)
            write_bytes(os.path.join(copy, NAME), read_bytes(os.path.join(folder, NAME)))
    return copy


@contextmanager
def _alone(copy: str) -> Iterator[None]:
    """Lock the folder of a copy, creating it if necessary, so that one process at a time copies into it."""
    os.makedirs(copy, exist_ok=True)
    handle = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_there(path: str, info: FileInfo) -> bool:
    """Return True if an earlier call copied the file; unfinished files have temporary names."""
    return os.path.exists(path) and os.path.getsize(path) == info.bytes


def _check_space(folder: str, copy: str, needed: int) -> None:
    if needed > (free := shutil.disk_usage(copy).free):
        raise FarspanError(
            f"{folder}: its local copy needs {needed:,} bytes, {copy} has {free:,} free; set {CACHE} to a folder with "
            "more space"
        )


def _copy(source: str, target: str, info: FileInfo) -> None:
    with files.open(source) as file, files.create(target) as created:
        sink = CountingHash(created)
        shutil.copyfileobj(file, sink, 8 << 20)  # type: ignore[misc]
        if (sink.bytes, sink.sha256()) != (info.bytes, info.sha256):
            raise FarspanError(
                f"{source}: {sink.bytes:,} bytes with sha256 {sink.sha256()}, the manifest says {info.bytes:,} and "
                f"{info.sha256}; copy it again from its source, or run the job that made it into an empty folder"
            )
