"""One job at a time in a folder: two would sweep away each other's temporary files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from corpora.errors import FarspanError


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold ``folder`` for this process; the lock goes with the process, however that ends.

    A folder on another file system (``scheme://``) has no lock.

    Raises:
        FarspanError: another process holds it, or it cannot be made.
    """
    if "://" in folder:
        yield
        return
    try:
        os.makedirs(folder, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise FarspanError(f"--output {folder}: cannot be used as a folder ({error.strerror}); give another") from error
    try:
        _take(handle, folder)
        yield
    finally:
        os.close(handle)


def _take(handle: int, folder: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FarspanError(f"{folder}: another farspan job works here; wait, or give another --output") from error
