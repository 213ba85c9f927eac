"""Exclusive creation of files, and modification times, on stores other than S3.

fsspec's file systems create exclusively if their store can (gcsfs, adlfs, memory); HDFS never renames onto a file.
Arrow's clients for GCS and Azure have no conditional writes, so fsspec's are used for this one operation.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyarrow import fs

from corpora.errors import FarspanError
from corpora.storage.temporary import temporary_name

_PACKAGES = {"gcs": "gcsfs", "abfs": "adlfs"}  # Arrow's name of a file system -> fsspec's package
_WHOLE = {"gcs", "gs", "abfs", "az", "memory"}  # fsspec's names of stores where a file appears only when complete


class Unsupported(FarspanError):
    """A store, or what is installed for it, lacks an operation."""


def create_new(system: fs.FileSystem, root: str, key: str, data: bytes) -> bool:
    """Create a file unless it exists; True for exactly one of several processes.

    Args:
        root: ``scheme://authority`` of the store.
        key: the path inside ``system``.

    Raises:
        Unsupported: the store cannot create exclusively, or a package is missing.
    """
    if system.type_name == "hdfs":
        return _renamed_once(system, key, data)
    store = _fsspec(system, root)
    try:
        store.pipe_file(key, data, mode="create")
    except FileExistsError:
        return False
    except (TypeError, NotImplementedError, ValueError) as error:
        raise Unsupported(f"{root}: its file system cannot create a file exclusively ({error})") from error
    return True


def publishes_whole(system: fs.FileSystem) -> bool:
    """Return True if a file made by ``create_new`` appears only when complete, however large it is."""
    if (store := fsspec_below(system)) is not None:
        names = store.protocol
        return not _WHOLE.isdisjoint((names,) if isinstance(names, str) else names)
    return system.type_name in _PACKAGES


def fsspec_below(system: fs.FileSystem) -> Any:
    """Return fsspec's file system that Arrow's stands for; None if it is Arrow's own."""
    return system.handler.fs if isinstance(system, fs.PyFileSystem) else None


def modified(system: fs.FileSystem, info: fs.FileInfo) -> float:
    """Return the modification time of a file, in seconds of its store's clock; 0 if it is gone.

    Raises:
        Unsupported: the store records no times.
    """
    if info.mtime_ns is not None:
        return info.mtime_ns / 1e9
    try:
        return float(system.handler.fs.modified(info.path).timestamp())
    except FileNotFoundError:
        return 0.0
    except (AttributeError, NotImplementedError) as error:
        raise Unsupported("its file system keeps no times of files") from error


def _fsspec(system: fs.FileSystem, root: str) -> Any:
    if (store := fsspec_below(system)) is not None:
        return store
    import fsspec  # slow to import, and local work does not need it

    try:
        return fsspec.core.url_to_fs(f"{root}/")[0]
    except (ImportError, ValueError) as error:
        package = _PACKAGES.get(system.type_name, "a package of fsspec")
        raise Unsupported(f"exclusive creation on {root} needs {package}: pip install {package}") from error


def _renamed_once(system: fs.FileSystem, key: str, data: bytes) -> bool:
    temporary = temporary_name(key)
    with system.open_output_stream(temporary) as stream:
        stream.write(data)
    try:
        system.move(temporary, key)
        return True
    except OSError:
        with suppress(FileNotFoundError):
            system.delete_file(temporary)
        if system.get_file_info(key).type.name == "NotFound":
            raise
        return False
