"""Folders of runs, written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def losses(steps: int, spikes: Sequence[int] = ()) -> np.ndarray:
    """``(steps,)`` falling losses with a little noise, and high ones at ``spikes``, counted from 1."""
    values = 3 + 2 * np.exp(-np.arange(steps) / 50) + 0.02 * np.random.default_rng(0).standard_normal(steps)
    values[np.array(spikes, int) - 1] += 2
    return values


def make_run(folder: Path, steps: int = 200, spikes: Sequence[int] = (), restarts: Sequence[int] = ()) -> Path:
    """A run with metrics and starts, evaluated at every 50th step."""
    folder.mkdir(parents=True)
    lines: list[dict] = []
    for step, loss in enumerate(losses(steps, spikes).tolist(), 1):
        numbers = {"loss": loss, "learning_rate": 1e-3 / step, "grad_norm": 1.0, "source_tokens": 1000}
        lines.append({"step": step, **numbers, "source_tokens_per_second": 5000.0})
        if step % 50 == 0:
            lines.append({"step": step, "held_out_loss/wiki": loss + 0.1})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    starts = [{"started": "2026-01-02T03:04:05+00:00", "recipe": "tiny", "step": step, "steps": 400}
              for step in (0, *restarts)]  # fmt: skip
    (folder / "starts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in starts))
    return folder
