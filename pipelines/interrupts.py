"""Signals: Ctrl-C while modules are imported, and SIGTERM to a process that shares a job.

An exception could get lost in an import, or print a traceback; hence this module imports nothing of farspan at first.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process at once; nothing has begun that could be left unfinished."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # ignored in the background of some shells
        signal.signal(signal.SIGINT, _exit)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise ``KeyboardInterrupt`` again."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(number: int, frame: FrameType | None) -> None:
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"farspan: interrupted\n")
    os._exit(128 + number)


class Terminated(BaseException):
    """The process received SIGTERM."""


class Interrupts:
    """Handling of SIGTERM while the context is open, in the main thread; elsewhere nothing is handled.

    At work on a task, SIGTERM lets it end if it does within ``grace`` seconds; a second one does not wait.
    """

    def __init__(self, grace: float) -> None:
        self._grace, self._ended, self._at_work = grace, False, False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._terminate)
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._alarm)
        return self

    def __exit__(self, *error: object) -> None:
        if self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    @contextmanager
    def working(self) -> Iterator[None]:
        """Work on a task."""
        self._at_work = True
        try:
            yield
        finally:
            self._at_work = False
        if self._ended:
            raise Terminated

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if not self._at_work or self._ended:
            self._ended = True
            raise Terminated
        from corpora.reporting import note

        self._ended = True
        note(f"farspan: SIGTERM: ends after this task, at most {self._grace:g} s from now")
        signal.setitimer(signal.ITIMER_REAL, max(self._grace, 0.001))

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if self._at_work:
            self._at_work = False  # one exception is enough
            raise Terminated
