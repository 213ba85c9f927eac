"""Handling of SIGINT and SIGTERM as a request to stop after the current update."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

ECHO = 3.0
"""Seconds within which a second signal counts as the same request; processes often receive a signal twice, directly and
from their launcher."""


class Interruption:
    """Context in which the first SIGINT or SIGTERM only sets ``received``.

    A signal at least ``ECHO`` seconds later has its usual effect. Outside the main thread, where Python cannot handle
    signals, the context does nothing.

    Attributes:
        received: name of the first signal; None before it.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._received_at = 0.0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = signal.Signals(number).name, time.monotonic()
        elif time.monotonic() - self._received_at >= ECHO:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
