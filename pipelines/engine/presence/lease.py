"""Leases: the decision by signs of life whether another process still works.

Each process renews its own file. The times of these files come from the clock of the store that they lie on, so
the clocks of the machines do not matter. Some parallel file systems take the time from the writer, and a wrong clock
makes a file look old there; so a process is dead only if its file has also not changed while it was watched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

LEASE = 60
"""Seconds without a sign of life, after which a process counts as dead."""
BEATS = 4
"""Signs of life within a lease."""


def beat_of(lease: float) -> float:
    """Seconds between two signs of life."""
    return lease / BEATS


@dataclass
class Watch:
    """Signs of life of other processes, as one process has seen them.

    Attributes:
        seen: name -> (time of the file by the store's clock, own time at which it was first seen so).
        missed: name -> own time since which there is no such file.
        now: the store's clock at the last look.
    """

    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    missed: dict[str, float] = field(default_factory=dict)
    now: float = 0.0

    def look(self, times: Mapping[str, float], own: str, renewed: float, at: float) -> None:
        """Take note of the times of all files.

        Args:
            times: name -> time of its file, by the store's clock.
            own: name of this process, whose file tells the store's clock.
            renewed, at: own monotonic time at which that file was renewed, and now.
        """
        self.now = times.get(own, self.now) + at - renewed
        for name, time in times.items():
            self.missed.pop(name, None)
            if self.seen.get(name, (None, 0))[0] != time:
                self.seen[name] = (time, at)
        for name in self.seen.keys() - times.keys():
            del self.seen[name]

    def beats(self, name: str, before: float) -> bool:
        """True if a sign of life has come since ``before``, in own monotonic time."""
        return name in self.seen and self.seen[name][1] > before

    def dead(self, name: str, lease: float, at: float) -> bool:
        """True if a process has given no sign of life for longer than its lease.

        Args:
            lease: seconds.
            at: own monotonic time.
        """
        if name not in self.seen:  # perhaps not yet to be seen, as folders are cached on network file systems
            return at - self.missed.setdefault(name, at) >= lease
        time, since = self.seen[name]
        unchanged = at - since
        return unchanged >= lease or (self.now - time >= lease and unchanged >= 2 * beat_of(lease))
