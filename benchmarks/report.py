"""Shared parts of the benchmarks: runs in turn, ratios, a plain table, machine and versions of a measurement."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any


@dataclass(frozen=True)
class Comparison:
    """The same work done twice, round by round."""

    # what was run, in a few words
    ours: str
    peer: str
    unit: str  # of the rates, e.g. `samples/s`
    # one a round; round i of both ran one right after the other
    our_rates: Sequence[float]
    peer_rates: Sequence[float]
    goal: float | None = None  # least ratio promised, None where nothing is

    @property
    def ratios(self) -> list[float]:
        return [ours / peer for ours, peer in zip(self.our_rates, self.peer_rates, strict=True)]

    @property
    def ratio(self) -> float:
        """Median of the rounds' ratios: what else the machine did then slowed both runs of a round."""
        return statistics.median(self.ratios)


HEADINGS = ("farspan", "peer", "unit", "farspan's rate", "peer's rate", "ratio", "lowest..highest", "goal")


def comparison_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Cells below ``HEADINGS``: median rates, median ratio, and the ratio of the worst and the best round."""
    return [
        (
            row.ours,
            row.peer,
            row.unit,
            f"{statistics.median(row.our_rates):,.0f}",
            f"{statistics.median(row.peer_rates):,.0f}",
            f"{row.ratio:.2f}x",
            f"{min(row.ratios):.2f}..{max(row.ratios):.2f}",
            "" if row.goal is None else f"{row.goal:g}x",
        )
        for row in comparisons
    ]


def in_turn(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each run in each round; one round to warm up is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def machine(*distributions: str) -> dict[str, str]:
    """Processor, usable cores, Python, and the version of each of the ``distributions``."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        **{name: version(name) for name in ("farspan", *distributions)},
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def arguments(description: str, rounds: int) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="how often each side runs, in turn")
    parser.add_argument("--json", metavar="FILE", help="also write what was measured, round by round")
    return parser


def publish(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    json_file: str | None,
    measured: Mapping[str, Any],
) -> None:
    """Print the table and, if a file is named, write ``measured`` to it."""
    widths = [max(len(row[i]) for row in (headings, *rows)) for i in range(len(headings))]
    print(f"\n{title}")
    for row in (headings, tuple("-" * width for width in widths), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("; ".join(f"{name} {value}" for name, value in environment.items()))
    if json_file:
        with open(json_file, "w") as file:
            json.dump({"title": title, "environment": environment, "measured": measured}, file, indent=1)
