"""Messages of a command to people and programs: lines of text or JSON objects, and none but results where quiet.

Notes and errors go to stderr, results to stdout. The choice holds for the process, as its two outputs do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from corpora.options import check_choices


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """Options of messages, which every command has.

    Attributes:
        quiet: print results and errors only, no progress.
        log_format: print messages as lines of text, or as JSON objects, one a line.
    """

    quiet: bool = False
    log_format: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        check_choices(self)


_current = Reporting()


def current() -> Reporting:
    """The options in force."""
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
    """Tell of progress: ``text``, or an object with ``event``, ``message`` and ``values``; nothing where quiet."""
    if not _current.quiet:
        _write(text, event, values, sys.stderr)


def tell_error(text: str) -> None:
    """Tell of an error that ends the command."""
    _write(text, "error", {}, sys.stderr)


def result(text: str, **values: Any) -> None:
    """Tell the result of a command, on stdout."""
    _write(text, "result", values, sys.stdout)


def as_line(text: str, event: str, values: Mapping[str, Any]) -> str:
    """The line of a message in the format in force."""
    if _current.log_format == "text":
        return text
    return json.dumps({"event": event, "message": text, **values}, ensure_ascii=False, default=str)


def _write(text: str, event: str, values: Mapping[str, Any], file: TextIO) -> None:
    print(as_line(text, event, values), file=file, flush=True)
