"""Tables of commands: for readers, or for programs as JSON, CSV or a message of ``--log-format json``."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from corpora.errors import FarspanError
from corpora.reporting import current, result

_LOG_WIDTH = 160  # characters of a line if the output is no terminal


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """Options of a command that prints a table.

    Attributes:
        json: print JSON instead of a table.
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

        Args:
            name, title: key of the rows and text of the message with ``--log-format json``.
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
