"""Creation of a file by exactly one of several processes, and times of files, on stores other than S3.

fsspec's file systems create exclusively where their store does (gcsfs, adlfs, memory); HDFS never renames onto a file.
Arrow's clients for GCS and Azure put no condition on a write, so fsspec's take their place for this one operation.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pyarrow import fs

from corpora.errors import FarspanError
from corpora.storage.temporary import temporary_name

_PACKAGES = {"gcs": "gcsfs", "abfs": "adlfs"}  # Arrow's name of a file system -> fsspec's package
_WHOLE = {"gcs", "gs", "abfs", "az", "memory"}  # fsspec's names of stores where a file appears with its last byte


class Unsupported(FarspanError):
    """A store, or what is installed for it, lacks an operation."""


def create_new(system: fs.FileSystem, root: str, key: str, data: bytes) -> bool:
    """Create a file unless it exists; True for exactly one of several processes.

    Args:
        root: ``scheme://authority`` of the store.
        key: the path inside ``system``.

    Raises:
        Unsupported: the store cannot do that, or a package is missing.
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
    """True if a file of ``create_new`` appears with its last byte, however large it is."""
    if isinstance(system, fs.PyFileSystem):
        names = system.handler.fs.protocol
        return not _WHOLE.isdisjoint((names,) if isinstance(names, str) else names)
    return system.type_name in _PACKAGES


def modified(system: fs.FileSystem, info: fs.FileInfo) -> float:
    """Seconds of the last change of a file, by the clock of its store.

    Raises:
        Unsupported: the store keeps no times.
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
    import fsspec  # takes a while, and local work needs none
    from pyarrow import fs

    if isinstance(system, fs.PyFileSystem):
        return system.handler.fs
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
