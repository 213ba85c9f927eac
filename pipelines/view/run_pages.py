"""What the page of runs shows: facts, curves, spikes, and the texts of the last validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.figures import thousands
from pipelines.pages.piece import COMPARED, compare
from pipelines.runs.logs import Logs, run_facts
from pipelines.runs.plot import PANELS, curves, smooth_curve
from pipelines.view.workspace import Workspace
from trainer.checkpoint.run_files import VALIDATION, DamagedError, read_sealed

WIDTH, HEIGHT = 560, 240  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 10, 24  # room for ticks
SIZES = {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "TOP": TOP, "BOTTOM": BOTTOM}
_POINTS = 400  # maximum points of a line
_SMOOTH = 25  # updates that a smoothed line averages
_Scale = Callable[[np.ndarray], np.ndarray]


def describe_runs(workspace: Workspace, names: Sequence[str]) -> dict[str, Any]:
    """Return the values of the template of runs; ``seen`` changes with the runs' logs."""
    runs, logs = [], {}
    for number, (name, follower) in enumerate(workspace.runs(names).items()):
        logs[number], entry = follower.read(), workspace.entries[name]
        more = {"number": number, "name": name, "title": entry.title, "spikes": logs[number].spikes}
        runs.append(run_facts(logs[number], name) | more | {"validation": _validation(Path(entry.folder))})
    seen = ".".join(
        f"{len(logs[run['number']].records)}-{run['state']}-{(run['validation'] or {}).get('step')}" for run in runs
    )
    return {"runs": runs, "panels": draw_panels(logs), "seen": seen, **SIZES}


def _validation(folder: Path) -> dict[str, Any] | None:
    """Texts of the last validation, with the words marked that each shares with its nearest reference."""
    try:
        values = read_sealed(folder / VALIDATION)
    except DamagedError:
        return None
    for text in values["texts"]:
        nearest, text["pieces"] = compare(text["text"][:COMPARED], text["references"])
        text["reference"] = text["references"][nearest][:COMPARED] if nearest >= 0 else ""
    return values


@dataclass(frozen=True)
class Line:
    """A curve of run number ``run``: points ``x,y x,y``, a faint line of single updates, and the last value."""

    run: int
    label: str
    points: str
    faint: str
    last: str


@dataclass(frozen=True)
class Panel:
    """A metric of several runs. Ticks are ``(place, label)``, restarts ``(run, place)``."""

    title: str
    lines: tuple[Line, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    restarts: tuple[tuple[int, float], ...] = ()
    spikes: tuple[tuple[int, int, float, float], ...] = ()  # run, update, and its place


def draw_panels(runs: Mapping[int, Logs]) -> list[Panel]:
    """Draw a panel for each metric that any run has; ``runs`` are numbered by their colours."""
    last = max((int(logs.records[-1]["step"]) for logs in runs.values() if logs.records), default=1)
    return [
        _panel(key, title, runs, last)
        for key, title in PANELS.items()
        if any(curves(logs, key) for logs in runs.values())
    ]


def _panel(key: str, title: str, runs: Mapping[int, Logs], last: int) -> Panel:
    known = [(run, *curve) for run, logs in runs.items() for curve in curves(logs, key)]
    low, high = _range([values for *_, values in known], cut=key in ("loss", "grad_norm"))
    if key == "source_tokens_per_second":
        low = 0.0

    def x(steps: np.ndarray) -> np.ndarray:
        return LEFT + (WIDTH - LEFT - RIGHT) * steps / max(last, 1)

    def y(values: np.ndarray) -> np.ndarray:
        place = TOP + (HEIGHT - TOP - BOTTOM) * (high - values) / (high - low)
        return np.clip(place, 0, HEIGHT - BOTTOM)

    lines = []
    for run, label, steps, values in known:
        shown = smooth_curve(values, key, _SMOOTH)
        faint = "" if shown is values else _points(x(steps), y(values))
        lines.append(Line(run, label, _points(x(steps), y(shown)), faint, _number(float(shown[-1]))))
    restarts = [(run, float(x(np.array(step)))) for run, logs in runs.items() for step in logs.restarts]
    spikes = tuple(_spikes(runs, x, y)) if key == "loss" else ()
    across = tuple((float(x(np.array(step))), thousands(step)) for step in _ticks(0, last) if step == int(step))
    up = tuple((float(y(np.array(value))), _number(value)) for value in _ticks(low, high))
    return Panel(title, tuple(lines), across, up, tuple(restarts), spikes)


def _spikes(runs: Mapping[int, Logs], x: _Scale, y: _Scale) -> Iterator[tuple[int, int, float, float]]:
    for run, logs in runs.items():
        steps, losses = logs.curve("loss")
        for step in logs.spikes:
            loss = losses[np.searchsorted(steps, step)]
            yield run, step, float(x(np.array(step))), max(float(y(loss)), 8.0)


def _range(curves: Sequence[np.ndarray], cut: bool) -> tuple[float, float]:
    """Lowest and highest value to show; with ``cut``, a few high ones are left out."""
    values = np.concatenate(curves)
    low, high = np.percentile(values, [0, 99.5 if cut else 100]).tolist()
    room = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from ``low`` to ``high``: three to eight of them."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 4))
    for step in (10 * unit, 5 * unit, 2 * unit, unit):
        first, last = math.ceil(low / step), math.floor(high / step)
        if last - first >= 2:
            break
    return [number * step for number in range(first, last + 1)]


def _points(x: np.ndarray, y: np.ndarray) -> str:
    """Points of a polyline; of many, the highest and lowest in equal parts."""
    if len(x) > _POINTS:
        cuts = np.linspace(0, len(x), _POINTS // 2, dtype=np.int64)[:-1]
        places = np.column_stack([cuts, cuts]).ravel()
        edges = np.append(cuts[1:], len(x))
        y = np.array([extreme(y[a:b]) for a, b in zip(cuts, edges, strict=True) for extreme in (np.min, np.max)])
        x = x[places]
    if len(x) == 1:  # a line needs two points
        x, y = x[0] + np.array([-4.0, 4.0]), np.repeat(y, 2)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _number(value: float) -> str:
    return thousands(value) if abs(value) >= 1000 else f"{value:.3g}"
