"""This process among those that work in a folder: its own sign of life, and a look at that of another.

Each process counts its beats in a file of its own. Another process is dead if it was killed on this machine, or if its
file has stayed the same for its lease while this process watched it: no clock is shared, and a process looks only at
those whose claims it could take over, so that the cost for each process does not grow with their number.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.stores.client_errors import Unsupported
from pipelines.engine.paths import claims_folder, processes_folder, remove_empty_folders
from pipelines.engine.presence.identity import Identity

BEATS = 4
"""Signs of life within a lease."""
_FAILURE = "job.failed"  # file with the message at which all processes end


class Member:
    """A process that works in a folder, from entering the context to leaving it.

    Attributes:
        identity: its name, kind and lease.
        gone: its sign of life was deleted: the job is finished, or its folder was deleted.
    """

    def __init__(
        self,
        output: str,
        identity: Identity,
        each_beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            each_beat: called in another thread after each sign of life.
            clock: own time in seconds.
        """
        self.identity, self.gone = identity, False
        self._output, self._each_beat, self._clock = output, each_beat, clock
        self._beats, self._stop = 0, threading.Event()
        self._seen: dict[str, tuple[bytes | None, float, bool]] = {}  # name -> sign, time of its change, if it changed
        self._failure: str | None = None
        self._thread = threading.Thread(target=self._keep_beating, name="farspan-sign-of-life", daemon=True)

    def __enter__(self) -> Member:
        files.write_bytes(self._path(self.identity.name), b"%020d" % 0)
        if files.is_local(self._output):
            os.makedirs(claims_folder(self._output), exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def require_exclusive(self) -> None:
        """Check that the store creates a file once; stores with S3's protocol may pass over the condition."""
        if files.create_new(self._path(self.identity.name), b"0"):
            raise Unsupported(f"{self._output}: the store creates a file a second time (it ignores If-None-Match)")

    def disappear(self) -> None:
        """Delete every trace of this process."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(FarspanError, OSError):
            files.delete([self._path(self.identity.name)])
        remove_empty_folders(self._output)

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
        found = map(Identity.parse, files.names(processes_folder(self._output)))
        others = [other for other in found if other and other != self.identity and other.kind == kind]
        return [other for other in others if not self.dead(other.name)]

    def fail(self, message: bytes) -> None:
        """Have all processes end with a message, unless the folder is gone; the first one counts."""
        with suppress(FileNotFoundError):
            files.create_new(self._failure_path, message)

    def failure(self) -> str | None:
        """Message of the process that failed; other processes learn of it with their next beat."""
        return self._failure

    def look_for_failure(self) -> None:
        with suppress(FileNotFoundError):
            if files.exists(self._failure_path):
                self._failure = files.read_bytes(self._failure_path).decode(errors="replace")

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
                self._each_beat()
                if self.gone:
                    return
