"""One thread for a benchmark: imported before numpy, whose libraries count threads when they are loaded."""

from __future__ import annotations

import os

for _library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"


def take_one_core() -> None:
    """Keep this process on one core from now on."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
