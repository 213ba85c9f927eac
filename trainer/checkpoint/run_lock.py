"""The lock of a run's directory, and a start counter for file systems without locks.

The lock keeps a second process out. Some network file systems have no locks: there, each start raises the counter, and
a process that finds a higher count at its next checkpoint stops, because a later process has taken over the run.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Any, BinaryIO

from corpora.errors import FarspanError
from trainer.checkpoint.run_files import DamagedError, read_sealed, write_sealed

_RECORD, _LOCK = "run.json", "run.lock"


class RunLock:
    """A lock on a run's directory, held until ``release`` or the end of the process.

    Attributes:
        start: number of processes that have started or resumed the run, this one included; 0 before ``begin``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self.start = directory, 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock: BinaryIO = (directory / _LOCK).open("ab")
        except OSError as error:
            raise FarspanError(
                f"the run's directory cannot be written to ({error}); set run.directory to a writable folder"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            holder = read_record(directory)
            raise FarspanError(
                f"{directory} is in use by process {holder.get('process', '?')} on {holder.get('host', '?')}; stop it "
                "first, or set run.directory to a new folder"
            ) from None
        except OSError:
            pass  # no locks here

    def begin(self) -> int:
        """Raise the start counter, so that an older process still running stops at its next checkpoint."""
        self.start = read_record(self._directory).get("start", 0) + 1
        record = {"start": self.start, "process": os.getpid(), "host": socket.gethostname()}
        write_sealed(self._directory / _RECORD, record)
        return self.start

    def require_newest(self) -> None:
        """Check that no later process has started."""
        newest = read_record(self._directory)
        if newest.get("start") != self.start:
            raise FarspanError(
                f"{self._directory} was taken over by process {newest.get('process', '?')} on "
                f"{newest.get('host', '?')}, which started later; this process stops"
            )

    def release(self) -> None:
        """Release the lock."""
        self._lock.close()


def read_record(directory: Path) -> dict[str, Any]:
    """Read the record of the newest start; empty if there is none or it is unreadable."""
    try:
        record = read_sealed(directory / _RECORD)
    except DamagedError:
        return {}
    return record if type(record.get("start")) is int else {}
