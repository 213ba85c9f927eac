"""Messages and tables of a command: text, or JSON for programs; in quiet mode, results and errors only.

Notes and errors go to stderr, results to stdout. The options apply to the whole process, as its two outputs do.
``Silence`` has a command say something at times while it works.
"""

from __future__ import annotations

import csv
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from corpora.errors import FarspanError

if TYPE_CHECKING:
    from rich.table import Table


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
_send: Callable[..., None] | None = None  # takes the notes of this process, if another one prints them


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
    if _send:
        _send(text, event, values)
    elif not _current.quiet:
        _write(text, event, values, sys.stderr)


def send_notes(send: Callable[[str, str, dict[str, Any]], None]) -> None:
    """Hand the notes of this process, with their event and values, to one that prints them."""
    global _send
    _send = send


class Silence:
    """Breaks the silence of a command within two seconds after its start, and each half minute from then on.

    A thread looks while the context lasts, and has ``tell`` print a line about what the command does.
    """

    period = 0.5
    """Seconds between two looks."""
    first, others = 1.5, 30.0
    """Seconds of silence before a line."""

    def __init__(self, tell: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self.begun = clock()
        self.last: float | None = None  # when something was last printed
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Silence:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def end(self) -> None:
        """Count the next silence from now on."""
        self.last = self._clock()

    def look(self) -> None:
        """Print a line if it is time for one."""
        since, limit = (self.begun, self.first) if self.last is None else (self.last, self.others)
        if self._clock() - since >= limit:
            self.end()
            self._tell()

    def _watch(self) -> None:
        while not self._over.wait(self.period):
            self.look()


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


_LOG_WIDTH = 160  # characters of a line if the output is no terminal


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """Options of a command that prints a table.

    Attributes:
        json: print JSON instead of a table; it takes no file: --json > FILE.
        csv: print CSV instead of a table; a value with parts has a column for each, such as `source_length.p50`.
    """

    json: bool = False
    csv: bool = False

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise FarspanError("--json and --csv: give one of them")

    @property
    def for_programs(self) -> bool:
        """True if stdout holds nothing but JSON or CSV."""
        return self.json or self.csv

    def print_rows(self, name: str, title: str, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Print rows for a program; return False if a table for readers was asked for.

        ``name``, ``title``: key of the rows and text of the message with ``--log-format json``.
        """
        if current().log_format == "json":
            result(title, **{name: rows})
        elif self.json:
            print(json.dumps(rows, indent=1))
        elif self.csv:
            flat = [dict(_flatten(row)) for row in rows]
            writer = csv.DictWriter(sys.stdout, list(dict.fromkeys(key for row in flat for key in row)))
            writer.writeheader()
            writer.writerows(flat)
        else:
            return False
        return True


def print_table(table: Table) -> None:
    """Print a table for readers, in a log as wide as most tables need."""
    from rich.console import Console  # slow to import, and few commands print tables

    console = Console(width=None if sys.stdout.isatty() else _LOG_WIDTH)
    with console.capture() as captured:  # rich would end the process with status 1 if the reader has ended
        console.print(table)
    print(captured.get(), end="")


def _flatten(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{before}{key}.")
        else:
            yield before + key, value
