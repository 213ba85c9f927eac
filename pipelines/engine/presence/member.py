"""This process among those that work in a folder: its own sign of life, and those of the others."""

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
from pipelines.engine.presence.lease import Watch, beat_of

IDLE, LEFT, FAILED = ".idle", ".left", ".failed"  # suffixes of files that say more of a process


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
        self._output, self._folder, self._each_beat, self._clock = output, processes_folder(output), each_beat, clock
        self._watch, self._lock, self._stop = Watch(), threading.Lock(), threading.Event()
        self._names: set[str] = set()
        self._old_failures: set[str] | None = None
        self._thread = threading.Thread(target=self._beat, name="farspan-sign-of-life", daemon=True)

    def __enter__(self) -> Member:
        files.write_bytes(self._path(""), self.identity.name.encode())
        self._renewed = self._clock()
        if files.is_local(self._folder):
            os.makedirs(claims_folder(self._output), exist_ok=True)
        try:
            self.look()
        except BaseException:
            self.disappear()
            raise
        self._old_failures = {name for name in self._names if name.endswith(FAILED)}
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def require_exclusive(self) -> None:
        """Check that the store creates a file once; stores with S3's protocol may pass over the condition.

        Raises:
            Unsupported: it does not.
        """
        if files.create_new(self._path(""), b"0"):
            raise Unsupported(f"{self._output}: the store creates a file a second time (it ignores If-None-Match)")

    def leave(self) -> None:
        """Mark this process as ended, so that no other process waits for its lease to expire."""
        self.mark(LEFT)

    def disappear(self) -> None:
        """Delete every trace of this process."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(FarspanError, OSError):
            files.delete([self._path(suffix) for suffix in ("", IDLE, LEFT, FAILED)])
        remove_empty_folders(self._output)

    def mark(self, suffix: str, data: bytes = b"") -> None:
        """Create a file that marks a state of this process, unless the folder is gone."""
        with suppress(FileNotFoundError):
            files.create_new(self._path(suffix), data)

    def unmark(self, suffix: str) -> None:
        files.delete([self._path(suffix)])

    def look(self) -> None:
        """See which processes there are and how old their signs of life are."""
        with self._lock:
            times = files.times(self._folder)
            self._names = set(times)
            self._watch.look(times, self.identity.name, self._renewed, self._clock())

    def dead(self, name: str) -> bool:
        """True if a process has left, was killed or is past its lease, as of the last look."""
        other = Identity.parse(name)
        with self._lock:
            if name + LEFT in self._names or (other is not None and other.killed()):
                return True
            return self._watch.dead(name, (other or self.identity).lease, self._clock())

    def beats(self, name: str, before: float) -> bool:
        """True if a process gave a sign of life since ``before``, in own time."""
        with self._lock:
            return self._watch.beats(name, before)

    def others(self, kind: str) -> list[Identity]:
        """The other processes of a kind that are not dead, as of the last look."""
        found = map(Identity.parse, sorted(self._names))
        others = [other for other in found if other and other != self.identity and other.kind == kind]
        return [other for other in others if not self.dead(other.name)]

    def busy(self, kind: str) -> list[Identity]:
        """Those among ``others`` that have not said that they are idle."""
        return [other for other in self.others(kind) if other.name + IDLE not in self._names]

    def failure(self) -> str | None:
        """The message of another process that failed after this one came."""
        for name in sorted(self._names - (self._old_failures or set())):
            if name.endswith(FAILED) and name != self.identity.name + FAILED:
                with suppress(FileNotFoundError):
                    return files.read_bytes(os.path.join(self._folder, name)).decode(errors="replace")
        return None

    def _path(self, suffix: str) -> str:
        return os.path.join(self._folder, self.identity.name + suffix)

    def _beat(self) -> None:
        while not self._stop.wait(beat_of(self.identity.lease)):
            with suppress(FarspanError, OSError):  # an object store may refuse for a while; the lease allows for that
                at = self._clock()
                self.gone = not files.renew(self._path(""), self.identity.name.encode())
                if self.gone:
                    self._each_beat()
                    return
                self._renewed = at
                self.look()
                self._each_beat()
