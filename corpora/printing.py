"""Values in words: untrusted text, counts with their nouns, options, and the estimated and real time of a job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import ceil
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


def format_interval(seconds: Sequence[float]) -> str:
    """Format an interval of seconds: ``55.0 s to 0:01:50``."""
    return " to ".join(map(format_seconds, seconds))


def format_seconds(seconds: float) -> str:
    """Format seconds: ``3.4 s`` below a minute, ``0:01:10`` from there on."""
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=ceil(seconds)))


def _log_path(output: str) -> str | None:
    """Return the log beside the local folder of a job or a run; None for a remote one."""
    from corpora.storage import files  # which --help does not need

    return output.rstrip("/") + ".estimate.json" if files.is_local(output) else None


def keep_estimate(output: str, values: Mapping[str, Any]) -> None:
    """Write an estimate, whose ``seconds`` are an interval, to the log."""
    if path := _log_path(output):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"estimate": dict(values)}, file, indent=1)


def compare_estimate(output: str, seconds: float, **of: Any) -> str | None:
    """Add to the log how long the job or run took, and describe it.

    None without an estimate, or with one of other values than those of ``of`` that are not None.
    """
    path = _log_path(output)
    if not path or not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        log = json.load(file)
    if any(value not in (None, log["estimate"].get(name)) for name, value in of.items()):
        return None
    log["actual"] = {"seconds": seconds}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(log, file, indent=1)
    return f"took {format_seconds(seconds)}, estimated {format_interval(log['estimate']['seconds'])}"
