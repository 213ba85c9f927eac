"""Estimates of a job or a run: intervals in words, and the log that has beside them what happened."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import ceil
from typing import Any

from corpora.storage import files


def format_interval(seconds: Sequence[float]) -> str:
    """Format an interval of seconds: ``55.0 s to 0:01:50``."""
    return " to ".join(map(format_seconds, seconds))


def format_seconds(seconds: float) -> str:
    """Format seconds: ``3.4 s`` below a minute, ``0:01:10`` from there on."""
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=ceil(seconds)))


def _log_path(output: str) -> str | None:
    """Return the log beside the local folder of a job or a run; None for a remote one."""
    return output.rstrip("/") + ".estimate.json" if files.is_local(output) else None


def keep_estimate(output: str, values: Mapping[str, Any]) -> None:
    """Write an estimate, whose ``seconds`` are an interval, to the log."""
    if path := _log_path(output):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"estimate": dict(values)}, file, indent=1)


def compare_estimate(output: str, seconds: float) -> str | None:
    """Add to the log how long the job or run took, and describe it; None without an estimate."""
    path = _log_path(output)
    if not path or not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        log = json.load(file)
    log["actual"] = {"seconds": seconds}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(log, file, indent=1)
    return f"took {format_seconds(seconds)}, estimated {format_interval(log['estimate']['seconds'])}"
