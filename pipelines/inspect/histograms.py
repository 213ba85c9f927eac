"""The figure of ``farspan stats``: a panel for each distribution, artefacts and sources in colours."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from corpora.errors import FarspanError
from pipelines.figures import count_axis, grid, line_above, save, short_names, thousands, use_style
from pipelines.inspect.distributions import PLACES, Distribution

LENGTHS = (4096, 16384)
"""Lengths of a source, in tokens, that statistics name if no others are given."""
_FEW = 20  # fewer values than these are drawn one by one
_MOST = 7  # maximum number of distributions in a panel: one per colour
_WIDE = 62  # maximum characters of a line above a panel
_COUNTED = ("tokens", "documents", "references")
_TAIL = 0.5  # percent of the values at either end that may lie outside the axis
_Named = tuple[str, Distribution]


def draw(distributions: Sequence[_Named], path: str) -> None:
    """Draw (artefact, distribution) pairs in a grid: one panel per name, with the artefacts overlaid.

    A handful of values are dots, more are the outline of a histogram.
    """
    folders = list(dict.fromkeys(folder for folder, _ in distributions))
    names = dict(zip(folders, short_names([PurePath(folder) for folder in folders]), strict=True))
    panels: dict[str, list[_Named]] = {}
    for folder, one in distributions:
        if len(one.values):
            panels.setdefault(one.name, []).append((names[folder], one))
    if not panels:
        raise FarspanError(f"{', '.join(folders)}: no row, so nothing to draw; leave --figure out")
    colours = {name: f"C{number % 7}" for number, name in enumerate(names.values())}
    with use_style() as plt:
        figure, axes = grid(plt, len(panels), panel=(3.6, 2.5))
        for axis, (name, shown) in zip(axes, panels.items(), strict=True):
            _panel(axis, name, shown, len(folders) > 1, colours)
        save(plt, figure, path)


def _largest(candidates: Sequence[_Named]) -> Sequence[_Named]:
    """Choose the ``_MOST`` distributions with the most values, in their order."""
    if len(candidates) <= _MOST:
        return candidates
    largest = sorted(candidates, key=lambda pair: -len(pair[1].values))[:_MOST]
    return [pair for pair in candidates if any(pair[1] is one for _, one in largest)]


def _panel(axis: Any, name: str, candidates: Sequence[_Named], several: bool, of_artefact: Mapping[str, str]) -> None:
    """Draw distributions of one name, and above them a line for each in its colour."""
    shown = _largest(candidates)
    counted = shown[0][1].unit in _COUNTED
    values = np.concatenate([one.values for _, one in shown])
    ends = [_ends(one.values, counted) for _, one in shown]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    if name in PLACES:
        low, high = 0.0, 1.0
    wide = counted and high > 20 * max(low, 1)
    edges = _edges(low, high, wide, counted)
    few = max(len(one.values) for _, one in shown) < _FEW
    mixed = len({folder for folder, _ in shown}) > 1
    by_artefact = len({folder for folder, _ in shown}) == len(shown)  # then the same colour in all panels
    above = []
    for number, (folder, one) in enumerate(shown):
        colour = of_artefact[folder] if by_artefact else f"C{number}"
        if few:
            axis.plot(one.values, np.full(len(one.values), -number), "o", color=colour, alpha=0.6, markersize=4)
        else:
            weights = np.full(len(one.values), 1 / len(one.values))  # artefacts of different sizes side by side
            axis.hist(one.values, edges, weights=weights, color=colour, histtype="stepfilled", alpha=0.12)
            axis.hist(one.values, edges, weights=weights, color=colour, histtype="step", linewidth=1.2)
        title = " ".join(filter(None, (folder if several and (mixed or not one.source) else "", one.source)))
        label = f"{title}: {describe(one)}" if title else describe(one)
        above += [(part, colour) for part in textwrap.wrap(label, _WIDE)]
    if len(candidates) > len(shown):
        above.append((f"{len(candidates) - len(shown)} more, with fewer values, left out", "0.4"))
    for number, (line, colour) in enumerate(above):
        line_above(axis, line, colour, len(above) - 1 - number)
    axis.set_title(name, pad=6 + 9 * len(above))
    outside = float(np.mean((values < low) | (values > high)))
    unit = "place, from the beginning to the end" if name in PLACES else shown[0][1].unit
    axis.set_xlabel(unit + (f" ({outside:.1%} outside)" if outside else ""))
    _axes(axis, shown[0][1].unit, edges, wide)
    if few:
        axis.set_yticks([])
        axis.set_ylim(-len(shown), 1)


def _axes(axis: Any, unit: str, edges: np.ndarray, wide: bool) -> None:
    """Set the limits and ticks of the axes; thousands are written as 4k, shares in percent."""
    from matplotlib.ticker import MaxNLocator

    if unit in _COUNTED:
        count_axis(axis.xaxis, float(edges[0]), float(edges[-1]), wide)
    else:
        axis.set_xlim(edges[0], edges[-1])
        axis.xaxis.set_major_locator(MaxNLocator(5))
    if unit == "share":
        axis.xaxis.set_major_formatter(_percent)
    axis.yaxis.set_major_formatter(_percent)
    axis.yaxis.set_major_locator(MaxNLocator(5))
    axis.grid(visible=False, axis="x")


def _percent(share: float, place: int) -> str:
    return f"{100 * share:.3g}%"


def describe(one: Distribution) -> str:
    """Describe values by their median; for lengths, add the shares of tokens beyond the first 4k and 16k of a text."""
    middle = float(np.median(one.values))
    if one.unit == "share":
        return f"median {100 * middle:.2g}%"
    if one.unit not in _COUNTED:
        return f"median {middle:.2f}"
    words = f"median {thousands(middle) if middle >= 10_000 else f'{middle:,.0f}'}"
    if one.unit == "tokens":
        beyond = {length: share_beyond(one.values, length) for length in LENGTHS}
        shares = [(f"{share:.0%}", thousands(length)) for length, share in beyond.items() if share >= 0.005]
        words += "".join(
            f"{', ' if number else '; '}{share} {'' if number else 'of tokens '}beyond {length}"
            for number, (share, length) in enumerate(shares)
        )
    return words


def share_beyond(lengths: np.ndarray, length: int) -> float:
    """The share of all tokens of texts with ``(n,)`` lengths that lie beyond their first ``length`` tokens."""
    return float(np.clip(lengths - length, 0, None).sum() / max(lengths.sum(), 1))


def _ends(values: np.ndarray, counted: bool) -> tuple[float, float]:
    """Smallest and largest value to show; a few counts far from all others are left out, so that the rest has room."""
    low, high = float(values.min()), float(values.max())
    inner_low = float(np.percentile(values, _TAIL, method="lower"))
    inner_high = float(np.percentile(values, 100 - _TAIL, method="higher"))
    if counted and inner_low > 2 * max(low, 1):
        low = inner_low
    if counted and high > 2 * max(inner_high, 1):
        high = inner_high
    return low, high


def _edges(low: float, high: float, wide: bool, counted: bool) -> np.ndarray:
    """Edges of the bins: equal ratios for widely spread values, else one or more whole numbers, or equal widths."""
    if wide:
        return np.geomspace(max(low, 1) * 0.9, high * 1.1, 40)
    if counted:
        step = max(1, -(-int(high - low + 1) // 40))
        return np.arange(np.floor(low), np.ceil(high) + step + 1, step) - 0.5
    return np.linspace(low, high if high > low else low + 1, 41)
