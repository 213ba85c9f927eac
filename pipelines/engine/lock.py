"""A lock on an output folder: two jobs there would delete each other's temporary files."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from corpora.errors import FarspanError
from corpora.storage.files import is_local

_held: set[tuple[int, str]] = set()  # (thread, folder) of the locks of this process


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Lock ``folder`` for this thread, creating it if necessary; the lock ends with the process at the latest.

    A thread may lock a folder that it holds already: a command does before it plans a job, and the job again. A folder
    that was made for the lock and is empty at the end is removed, as are folders above it. A folder on another file
    system (``scheme://``) has no lock.

    Raises:
        FarspanError: another process or thread holds it, or it cannot be made.
    """
    if not is_local(folder):
        yield
        return
    key = (threading.get_ident(), os.path.realpath(folder))
    if key in _held:
        yield
        return
    made = list(_missing(key[1]))
    handle = _open_locked(folder)
    _held.add(key)
    try:
        yield
    finally:
        _held.remove(key)
        with suppress(OSError):  # not empty
            for path in made:
                os.rmdir(path)
        os.close(handle)


def _missing(folder: str) -> Iterator[str]:
    """``folder`` and the folders above it that do not exist, the lowest first."""
    while not os.path.lexists(folder):
        yield folder
        folder = os.path.dirname(folder)


def _open_locked(folder: str) -> int:
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise FarspanError(
                f"--output {folder}: cannot be used as a folder ({error.strerror}); give another"
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(folder)):
                return handle
        except BlockingIOError as error:
            os.close(handle)
            raise FarspanError(f"{folder}: another farspan job works here; wait, or give another --output") from error
        except FileNotFoundError:
            pass  # removed by the process that held it, after it was opened here
        os.close(handle)
