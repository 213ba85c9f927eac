"""Messages of a command: lines of text or JSON objects; in quiet mode, results and errors only.

Notes and errors go to stderr, results to stdout. The options apply to the whole process, as its two outputs do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """Options of messages; every command has them.

    Attributes:
        quiet: print results and errors only, no progress.
        log_format: print messages as lines of text, or as JSON objects, one per line.
    """

    quiet: bool = False
    log_format: Literal["text", "json"] = "text"


_current = Reporting()


def current() -> Reporting:
    """Return the options in force."""
    return _current


@contextmanager
def reporting(options: Reporting) -> Iterator[None]:
    """Use ``options`` inside the ``with`` block."""
    global _current
    before, _current = _current, options
    try:
        yield
    finally:
        _current = before


def note(text: str, event: str = "note", **values: Any) -> None:
    """Print progress: ``text``, or a JSON object with ``event``, ``message`` and ``values``; nothing in quiet mode."""
    if not _current.quiet:
        _write(text, event, values, sys.stderr)


def suggest(command: str) -> None:
    """Name the command that is likely next, to a reader at a terminal."""
    if sys.stderr.isatty():
        note(f"next: {command}", "next", command=command)


def tell_error(text: str) -> None:
    """Print an error that ends the command."""
    _write(text, "error", {}, sys.stderr)


def result(text: str, **values: Any) -> None:
    """Print the result of a command, on stdout."""
    _write(text, "result", values, sys.stdout)


def as_line(text: str, event: str, values: Mapping[str, Any]) -> str:
    """Format a message as one line of text or JSON, as the options in force say."""
    if _current.log_format == "text":
        return text
    return json.dumps({"event": event, "message": text, **values}, ensure_ascii=False, default=str)


def _write(text: str, event: str, values: Mapping[str, Any], file: TextIO) -> None:
    print(as_line(text, event, values), file=file, flush=True)
