"""``farspan plot``: curves of runs side by side, and the updates at which a loss rose."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from corpora.reporting import result
from pipelines.figures import check_figure, grid, label_lines, save, short_names, thousands, use_style
from pipelines.options import Plot
from pipelines.runs.logs import Logs, average, read_logs

PANELS = {
    "loss": "loss",
    "held_out_loss": "held-out loss",
    "learning_rate": "learning rate",
    "grad_norm": "gradient norm",
    "source_tokens_per_second": "source tokens/s",
}
"""Metric -> title of its panel."""
_LABEL = 50  # maximum characters of a command beside its mark
_STACKED = 3  # number of heights at which the labels of neighbouring marks are written


def command(options: Plot) -> None:
    """Run ``farspan plot``."""
    check_figure(options.figure)
    all_logs = [read_logs(run) for run in options.run]
    _check_metrics(all_logs, options.metric)
    draw(all_logs, options.figure, options.over, options.smooth, options.metric)
    for run, logs in zip(options.run, all_logs, strict=True):
        for step in logs.spikes:
            result(f"the loss rose at step {step:,}: {show_command(run, step)}", run=run, step=step)
    result(f"figure: {options.figure}", figure=options.figure)


def show_command(run: str, step: int) -> str:
    """Return the command that shows the rows of an update."""
    return f"farspan show {shlex.quote(run)} --step {step}"


def _check_metrics(runs: Sequence[Logs], metrics: Sequence[str]) -> None:
    for name in metrics:
        if name not in PANELS:
            raise FarspanError(f"--metric {name}: choose one of {', '.join(PANELS)}")
        if not any(curves(logs, name) for logs in runs):
            folders = ", ".join(str(logs.folder) for logs in runs)
            raise FarspanError(f"--metric {name}: {folders} did not record it; leave it out")


def draw(runs: Sequence[Logs], path: str, over: str = "steps", smooth: int = 25, metrics: Sequence[str] = ()) -> None:
    """Draw a panel for each metric that any run has, or for those of ``metrics``, with a line for each run.

    ``over`` is ``steps`` or ``tokens``; a smoothed line averages ``smooth`` updates.
    """
    names = short_names([logs.folder.resolve() for logs in runs])
    shown = [(key, title) for key, title in PANELS.items() if not metrics or key in metrics]
    panels = [(key, title) for key, title in shown if any(curves(logs, key) for logs in runs)]
    last = max(float(_places(logs, np.array([logs.records[-1]["step"]]), over)[0]) for logs in runs)
    with use_style() as plt:
        figure, axes = grid(plt, len(panels))
        for axis, (key, title) in zip(axes, panels, strict=True):
            ends = []
            for number, logs in enumerate(runs):
                colour = f"C{number % 7}"
                for name, steps, values in curves(logs, key):
                    x = _places(logs, steps, over)
                    label = " ".join(filter(None, (names[number] if len(runs) > 1 else "", name)))
                    end = _line(axis, x, values, colour, smooth, key)
                    ends.append((*end, label, colour))
                _restarts(axis, logs, over, colour)
            if key == "loss":
                _spikes(axis, runs, over)
            axis.set_title(title)
            axis.set_xlim(-0.01 * last, 1.01 * last)  # the same in all panels
            axis.set_xlabel("source tokens" if over == "tokens" else "updates")
            axis.xaxis.set_major_formatter(lambda value, _: thousands(value))
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
            if key == "source_tokens_per_second":
                axis.yaxis.set_major_formatter(lambda value, _: thousands(value))
                axis.set_ylim(bottom=0)
            if any(label for *_, label, _ in ends):
                label_lines(axis, ends)
        notes = []
        if any(logs.restarts for logs in runs):
            notes.append("dotted: the run was started again")
        if any(logs.spikes for logs in runs):
            notes.append("triangle: the loss rose far above that of the 50 updates before")
        if notes:
            figure.supxlabel("; ".join(notes), fontsize=7, color="0.3")
        save(plt, figure, path)


def curves(logs: Logs, key: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return the lines of a panel as (suffix of the name, steps, values)."""
    keys = logs.held_out if key == "held_out_loss" else [key]
    curves = [(name.partition("/")[2], *logs.curve(name)) for name in keys]
    return [(name, steps, values) for name, steps, values in curves if len(values)]


def smooth_curve(values: np.ndarray, key: str, width: int) -> np.ndarray:
    """Average ``width`` values of a metric, at most a twentieth of them; gradient norms by their median.

    Returns ``values`` themselves if there are too few, or if the metric is never smoothed.
    """
    width = min(width, len(values) // 20)  # a wider average shows the beginning of a short run far from its values
    if key in ("learning_rate", "held_out_loss") or width < 2:
        return values
    return average(values, width, outliers=key == "grad_norm")


def _line(axis: Any, x: np.ndarray, values: np.ndarray, colour: str, smooth: int, key: str) -> tuple[float, float]:
    """Draw values, faintly if a smoothed line is drawn too; return the end of the line."""
    shown = smooth_curve(values, key, smooth)
    if shown is not values:
        axis.plot(x, values, color=colour, alpha=0.25, linewidth=0.7)
    axis.plot(x, shown, color=colour, marker="o" if len(values) < 20 else None, markersize=3)
    if key in ("loss", "grad_norm") and len(values) > 2:  # otherwise a few high values would flatten the curve
        low, high = np.percentile(values, [0, 99.5])
        bottom, top = axis.get_ylim()
        room = 0.06 * (high - low)
        if high > low and axis.get_autoscaley_on():
            axis.set_ylim(low - room, high + room)
        elif high > low:
            axis.set_ylim(min(bottom, low - room), max(top, high + room))
    return float(x[-1]), float(shown[-1])


def _places(logs: Logs, steps: np.ndarray, over: str) -> np.ndarray:
    """Positions of ``(n,)`` steps on the horizontal axis, ``(n,)``."""
    return logs.tokens_at(steps) if over == "tokens" else steps


def _restarts(axis: Any, logs: Logs, over: str, colour: str) -> None:
    """Mark the restarts of a run."""
    for place in _places(logs, np.array(logs.restarts, np.int64), over):
        axis.axvline(float(place), color=colour, linewidth=0.8, linestyle=(0, (1, 3)), gid="restart")


def _spikes(axis: Any, runs: Sequence[Logs], over: str) -> None:
    """Mark the updates at which the loss rose; each mark names the command that shows their rows."""
    bottom, top = axis.get_ylim()
    marks = []
    for number, logs in enumerate(runs):
        steps, losses = logs.curve("loss")
        spike_steps = np.array(logs.spikes, np.int64)
        for step, place in zip(spike_steps.tolist(), _places(logs, spike_steps, over).tolist(), strict=True):
            height = min(float(losses[np.searchsorted(steps, step)]), top)
            marks.append((place, height, step, logs, f"C{number % 7}"))
    if marks:
        axis.set_ylim(bottom, top + 0.07 * (top - bottom) * min(len(marks), _STACKED))  # space for the labels
    for number, (place, height, step, logs, colour) in enumerate(sorted(marks, key=lambda mark: mark[:2])):
        command = show_command(str(logs.folder), step)
        shown = command if len(command) <= _LABEL else f"farspan show … --step {step}"
        axis.plot([place], [height], marker="v", markersize=5, color=colour)
        right = place > 0.5 * axis.get_xlim()[1]
        axis.annotate(
            shown,
            (place, height),
            (-5 if right else 5, 2 + 8 * (number % _STACKED)),
            textcoords="offset points",
            fontsize=6,
            color=colour,
            ha="right" if right else "left",
            gid=command,
        )
