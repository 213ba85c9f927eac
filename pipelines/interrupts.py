"""Ctrl-C while the command's modules are imported, when an exception could get lost or print a traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


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
