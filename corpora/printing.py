"""Printing: untrusted text, safe for a terminal, counts with their nouns, and values of options."""

from __future__ import annotations

import json
import re
from typing import Any

_PLURAL = re.compile(r"s\b")  # the end of the noun in the name of a total
_UNITS = {
    "first_level": "documents before it was split",
    "padding": "positions of padding",
    "source_length": "source positions",
    "target_length": "target positions",
}  # totals whose names lack a unit
# C0, DEL and C1 controls (among them ESC, which starts terminal commands) except tab and line feed; Unicode's
# direction marks, embeddings, overrides and isolates, which change the order in which text is shown.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return ``text`` with control characters escaped as in Python (``\\x1b``), so that a terminal obeys none."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def format_count(count: float, noun: str) -> str:
    """Return a count with its noun in the right number: ``1 row``, ``2,000 rows``; the plural of ``noun`` adds an s."""
    number = f"{count:g}" if isinstance(count, float) else f"{count:,}"
    return f"{number} {noun if count == 1 else noun + 's'}"


def row_numbers(rows: int) -> str:
    """Return the numbers of ``rows`` rows in words, for messages: ``no rows``, ``rows 0 to 9``."""
    return f"rows 0 to {rows - 1}" if rows else "no rows"


def format_total(count: int, name: str) -> str:
    """Return a total of a manifest in words: ``1 document`` for ``documents``, ``2 tokens`` for ``max_tokens``."""
    name = name.removeprefix("max_")
    words = _UNITS.get(name, name.replace("held_out", "held-out").replace("_", " "))
    return f"{count:,} {_PLURAL.sub('', words, count=1) if count == 1 else words}"


def option_text(value: Any) -> str:
    """Format a value for ``--set``, with short floats for reading."""
    return json.dumps(json.loads(json.dumps(value), parse_float=lambda digits: float(f"{float(digits):.6g}")))
