"""The processes that work in a folder: their names, the sign of life of this one, and a look at that of another.

A name contains machine and process, which say whether a process of this machine lives. Each process counts its beats
in a file of its own. Another process is dead if it was killed on this machine, or if its file has stayed the same for
its lease while this process watched it: no clock is shared, and a process looks only at those whose claims it could
take over, so that the cost for each process does not grow with their number.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.job import claims_folder, processes_folder, remove_empty_folders

BEATS = 4
"""Signs of life within a lease."""
_FAILURE = "job.failed"  # file with the message at which all processes end
DRIVER = "driver"
"""A process that works in a folder alone."""
LAUNCHER = "launcher"
"""One of several processes that share a job."""


@dataclass(frozen=True)
class Identity:
    """A process that works in a folder."""

    kind: str  # DRIVER or LAUNCHER
    host: str
    pid: int
    started: int  # clock ticks since the machine's start; with ``pid`` unique on a machine
    machine: str  # the running kernel and its space of process ids; equal only where ``pid`` means the same
    lease: float  # seconds without a sign of life, after which it counts as dead
    nonce: str

    @classmethod
    def own(cls, kind: str, lease: float) -> Identity:
        """A new identity of this process."""
        host = re.sub(r"[^\w.-]", "", socket.gethostname())[:64] or "unknown"
        return cls(kind, host, os.getpid(), _start_of(os.getpid()) or 0, _machine(), lease, uuid.uuid4().hex[:8])

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """Parse a ``name``; None for other texts."""
        with suppress(ValueError):
            kind, host, pid, started, machine, lease, nonce = name.split("~")
            if "." not in nonce:  # with a suffix, it says more of a process
                return cls(kind, host, int(pid), int(started), machine, float(lease), nonce)
        return None

    @property
    def name(self) -> str:
        """File name that contains all fields."""
        parts = (self.kind, self.host, self.pid, self.started, self.machine, f"{self.lease:g}", self.nonce)
        return "~".join(map(str, parts))

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def killed(self) -> bool:
        """True if it ran on this machine and has ended; False where that cannot be told."""
        return self.machine == _machine() and bool(self.started) and _start_of(self.pid) != self.started


@lru_cache(maxsize=1)
def _machine() -> str:
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return uuid.uuid4().hex[:12]  # equal to no other
    return hashlib.sha256(f"{kernel} {space}".encode()).hexdigest()[:12]


def _start_of(pid: int) -> int | None:
    """Start of a process in clock ticks; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Member:
    """A process that works in a folder, from entering the context to leaving it.

    It is ``gone`` once its sign of life was deleted: the job is finished, or its folder was deleted.
    """

    def __init__(self, output: str, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self.identity, self.gone = identity, False
        self._output, self._clock = output, clock
        self._beats, self._stop = 0, threading.Event()
        self._seen: dict[str, tuple[bytes | None, float, bool]] = {}  # name -> sign, time of its change, if it changed
        self.failure: str | None = None  # message of the process that failed, known with the next beat
        self._thread = threading.Thread(target=self._keep_beating, name="farspan-sign-of-life", daemon=True)

    def __enter__(self) -> Member:
        files.write_bytes(self._path(self.identity.name), b"%020d" % 0)  # first, as it keeps the other folder
        if files.is_local(self._output):
            os.makedirs(claims_folder(self._output), exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Delete every trace of this process."""
        self._stop.set()
        self._thread.join()
        with suppress(FarspanError, OSError):
            files.delete([self._path(self.identity.name)])
        remove_empty_folders(self._output)

    def require_exclusive(self) -> None:
        """Check that the store creates a file once; stores with S3's protocol may pass over the condition."""
        if files.create_new(self._path(self.identity.name), b"0"):
            raise Unsupported(f"{self._output}: the store creates a file a second time (it ignores If-None-Match)")

    def dead(self, name: str) -> bool:
        """Look at a process, and return True if it was killed, or has been silent for its lease."""
        other = Identity.parse(name)
        if other is not None and other.killed():
            return True
        try:
            sign = files.read_bytes(self._path(name))
        except FileNotFoundError:  # perhaps not yet to be seen, as folders are cached on network file systems
            sign = None
        now = self._clock()
        before = self._seen.get(name)
        if before is None or before[0] != sign:
            self._seen[name] = (sign, now, before is not None)
            return False
        return now - before[1] >= (other or self.identity).lease

    def beats(self, name: str) -> bool:
        """True if a process has given a sign of life between two looks."""
        return self._seen.get(name, (None, 0.0, False))[2]

    def others(self, kind: str) -> list[Identity]:
        """The other processes of a kind that are not dead; takes a request for each."""
        identities = map(Identity.parse, files.names(processes_folder(self._output)))
        others = [other for other in identities if other and other != self.identity and other.kind == kind]
        return [other for other in others if not self.dead(other.name)]

    def fail(self, message: bytes) -> None:
        """Have all processes end with a message, unless the folder is gone; the first one counts."""
        with suppress(FileNotFoundError):
            files.create_new(self._failure_path, message)

    def look_for_failure(self) -> None:
        with suppress(FileNotFoundError):
            if files.exists(self._failure_path):
                self.failure = files.read_bytes(self._failure_path).decode(errors="replace")

    def beat(self) -> None:
        """Give a sign of life, unless it was deleted."""
        self._beats += 1
        self.gone = not files.renew(self._path(self.identity.name), b"%020d" % self._beats)

    @property
    def _failure_path(self) -> str:
        return os.path.join(claims_folder(self._output), _FAILURE)

    def _path(self, name: str) -> str:
        return os.path.join(processes_folder(self._output), name)

    def _keep_beating(self) -> None:
        while not self._stop.wait(self.identity.lease / BEATS):
            with suppress(FarspanError, OSError):  # an object store may refuse for a while; the lease allows for that
                self.beat()
                self.look_for_failure()
                if self.gone:
                    return
