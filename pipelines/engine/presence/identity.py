"""Names of processes, which contain the machine and allow a check on it whether the process is alive."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

LEASE = 60
"""Seconds without a sign of life, after which a process counts as dead."""
DRIVER = "driver"
"""A process that works in a folder alone."""
LAUNCHER = "launcher"
"""One of several processes that share a job."""
WORKER = "worker"
"""A driver, or a process that it started, as one of those that share its tasks."""


@dataclass(frozen=True)
class Identity:
    """A process that works in a folder.

    Attributes:
        kind: ``DRIVER``, ``LAUNCHER`` or ``WORKER``.
        host, pid: where it runs.
        started: its start, in clock ticks since the machine's; with ``pid`` unique on a machine.
        machine: of the running kernel and its space of process ids; equal only where ``pid`` means the same.
        lease: seconds without a sign of life, after which it counts as dead.
        nonce: unique.
    """

    kind: str
    host: str
    pid: int
    started: int
    machine: str
    lease: float
    nonce: str

    @classmethod
    def own(cls, kind: str, lease: float) -> Identity:
        """A new identity of this process."""
        host = re.sub(r"[^\w.-]", "", socket.gethostname())[:64] or "unknown"
        return cls(kind, host, os.getpid(), _started(os.getpid()) or 0, _machine(), lease, uuid.uuid4().hex[:8])

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """Parse a ``name``; None for other texts."""
        parts = name.split("~")
        with suppress(ValueError):
            if len(parts) == 7 and "." not in parts[-1]:  # with a suffix, it says more of a process
                kind, host, pid, started, machine, lease, nonce = parts
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
        return self.machine == _machine() and bool(self.started) and _started(self.pid) != self.started


@lru_cache(maxsize=1)
def _machine() -> str:
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return uuid.uuid4().hex[:12]  # equal to no other
    return hashlib.sha256(f"{kernel} {space}".encode()).hexdigest()[:12]


def is_running(pid: int) -> bool:
    """True for a process of this machine that has not ended, whether or not its parent knows that it has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{os.getpid()}/stat").exists() or _started(pid) is not None


def _started(pid: int) -> int | None:
    """Start of a process in clock ticks; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
