"""The table of ``farspan evaluate``: on a terminal, and as a figure of intervals, lengths or heat maps."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.printing import format_count, printable
from objectives.metrics.metrics import COPIED_NGRAM
from pipelines.figures import grid, label_lines, line_above, save, thousands, use_style

_CHARACTERS = 12.5  # of a line that describes a metric's flavour, per inch of the figure
_APART = 0.14  # minimum distance of two labels of groups, as a share of the axis


def print_table(table: Mapping[str, Any]) -> None:
    """Print flavours, then one column for each system: values, differences, lengths, copies and groups."""
    console = Console(soft_wrap=True, highlight=False)
    heading = f"{format_count(table['examples'], 'pair')} of split {table['split']} in {table['pairs']}"
    console.print(Text(printable(heading)))
    for name, metric in table["metrics"].items():
        console.print(Text(f"{name}: {metric['flavour']}"))
    interval = table["interval"]
    console.print(
        f"intervals: {interval['percent']} % of {interval['resamples']:,} paired bootstrap resamples, seed "
        f"{interval['seed']}",
        markup=False,
    )
    Console(highlight=False).print(_rich(table))
    for crossed in _crossed(table) if table["crossed"] else ():
        Console(highlight=False).print(crossed)


def short_names(table: Mapping[str, Any]) -> list[str]:
    """The names of the systems, without the folder that contains all of them."""
    names = [system["name"].rstrip("/") for system in table["systems"]]
    folder = os.path.commonpath([os.path.dirname(name) for name in names]) if len(set(names)) > 1 else ""
    return [os.path.relpath(name, folder) if folder else name for name in names]


def _rich(table: Mapping[str, Any]) -> Table:
    systems: Sequence[Mapping[str, Any]] = table["systems"]
    between = "\n" if len(systems) > 2 else " "

    def value(number: Mapping[str, float], sign: str = "") -> str:
        return f"{number['value']:{sign}.2f}{between}\\[{number['low']:{sign}.2f}, {number['high']:{sign}.2f}]"

    shown = Table("")
    for name in short_names(table):
        shown.add_column(Text(printable(name)), justify="right", overflow="fold")
    for key in systems[0]["scores"]:
        shown.add_row(key, *(value(system["scores"][key]) for system in systems))
        if len(systems) > 1:
            shown.add_row("  less the first", "", *(value(system["differences"][key], "+") for system in systems[1:]))
    shown.add_section()
    shown.add_row("predicted words", *(f"{system['predicted_words']:,.1f}" for system in systems))
    shown.add_row("reference words", *(f"{system['reference_words']:,.1f}" for system in systems))
    shown.add_row("empty predictions", *(f"{system['empty']:,}" for system in systems))
    key = f"copied_{COPIED_NGRAM}grams"
    short = all(system["predicted_words"] < COPIED_NGRAM for system in systems)  # most are a single n-gram
    title = "predictions" if short else f"{COPIED_NGRAM}-grams"
    shown.add_row(
        f"{title} found in the documents", *("" if system[key] is None else f"{system[key]:.1%}" for system in systems)
    )
    for kind, groups in table["groups"].items():
        for key in groups[0]["scores"][0]:
            shown.add_section()
            shown.add_row(Text(printable(f"{key} by {kind}")))
            for group in groups:
                label = Text(printable(f"  {group['name']} ({format_count(group['examples'], 'pair')})"))
                shown.add_row(label, *(value(scores[key]) for scores in group["scores"]))
    return shown


def _crossed(table: Mapping[str, Any]) -> Iterator[Table]:
    """A table for each system and key: the first attribute across, the second down."""
    (across, columns), (down, rows) = _crossed_groups(table)
    for number, name in enumerate(short_names(table)):
        for key in table["crossed"][0]["scores"][number]:
            scores = {tuple(cell["name"]): cell["scores"][number][key]["value"] for cell in table["crossed"]}
            shown = Table(title=Text(printable(f"{name}: {key}")))
            shown.add_column(Text(printable(f"{down} by {across}")))
            for column in columns:
                shown.add_column(Text(printable(column)), justify="right")
            for row in rows:
                values = (scores.get((column, row)) for column in columns)
                shown.add_row(Text(printable(row)), *("" if value is None else f"{value:.1f}" for value in values))
            yield shown


def _crossed_groups(table: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Each of the two attributes that are crossed, with the names of its groups."""
    attributes = [*table["groups"]][1:3]  # after the groups by length
    return [(name, [group["name"] for group in table["groups"][name]]) for name in attributes]


def draw(table: Mapping[str, Any], path: str) -> None:
    """Draw, for each metric's primary key, the systems' intervals and their scores by the length of the documents.

    A table with crossed attributes is drawn as a heat map for each system and key.
    """
    keys = list(dict.fromkeys(metric["primary"] for metric in table["metrics"].values()))
    tall = max(1.2 + 0.3 * len(table["systems"]), 2.5)
    with use_style() as plt:
        if table["crossed"]:
            figure = _heat_maps(plt, table, keys)
        else:
            figure, axes = grid(plt, 2 * len(keys), columns=2, panel=(4.4, tall))
            for number, key in enumerate(keys):
                _intervals(axes[2 * number], table, key)
                _lengths(axes[2 * number + 1], table, key)
        width = int(_CHARACTERS * figure.get_figwidth())
        flavours = [f"{name}: {metric['flavour']}" for name, metric in table["metrics"].items()]
        figure.supxlabel("\n".join(textwrap.fill(flavour, width) for flavour in flavours), fontsize=7, color="0.3")
        save(plt, figure, path)


def _heat_maps(plt: Any, table: Mapping[str, Any], keys: Sequence[str]) -> Any:
    """Draw a panel for each key and system, the values of the first attribute from left to right."""
    (across, columns), (down, rows) = _crossed_groups(table)
    size = (1.6 + 0.42 * max(len(columns), 4), 1.1 + 0.22 * max(len(rows), 4))
    names = short_names(table)
    figure, axes = grid(plt, len(keys) * len(names), columns=min(len(names), 3), panel=size)
    for axis, (key, number) in zip(axes, product(keys, range(len(names))), strict=True):
        cells = np.full((len(rows), len(columns)), np.nan)
        for cell in table["crossed"]:
            one, other = cell["name"]
            cells[rows.index(other), columns.index(one)] = cell["scores"][number][key]["value"]
        image = axis.imshow(cells, cmap="cividis", vmin=0, vmax=100, aspect="auto")
        for (row, column), value in np.ndenumerate(cells):
            if not np.isnan(value):
                colour = "white" if value < 50 else "black"
                axis.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
        axis.set_xticks(range(len(columns)), list(map(_label, columns)))
        axis.set_yticks(range(len(rows)), list(map(_label, rows)))
        axis.set_xlabel(across)
        axis.set_ylabel(down)
        axis.grid(visible=False)
        axis.set_title(f"{names[number]}: {key}", pad=15)
        line_above(axis, f"{table['split']}, {format_count(table['examples'], 'pair')}", "0.3")
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def _label(value: str) -> str:
    """Shorten a number of at least a thousand."""
    return thousands(float(value)) if value.isdecimal() and len(value) > 3 else value


def _intervals(axis: Any, table: Mapping[str, Any], key: str) -> None:
    """Draw a dot and a bar for each system, from top to bottom."""
    names = short_names(table)
    for number, system in enumerate(table["systems"]):
        _bar(axis, -number, system["scores"][key], number, horizontal=True)
    axis.set_yticks(-np.arange(len(names)), names)
    axis.set_ylim(-len(names) + 0.4, 0.6)
    axis.set_title(key, pad=15)
    line_above(axis, f"{table['split']}, {format_count(table['examples'], 'pair')}, 95 % intervals", "0.3")
    axis.grid(visible=False, axis="y")


def _lengths(axis: Any, table: Mapping[str, Any], key: str) -> None:
    """Draw a line for each system over the median lengths of the bins, with its name at the end."""
    bins = table["groups"]["document tokens"]
    lengths = np.array([group["median_document_tokens"] for group in bins], np.float64)
    names, ends = short_names(table), []
    log = lengths.max() > 4 * max(lengths.min(), 1)
    spread = np.ptp(np.log(np.maximum(lengths, 1)) if log else lengths)
    for number, name in enumerate(names):
        scores = [group["scores"][number][key] for group in bins]
        aside = 0.012 * (number - (len(names) - 1) / 2) * spread  # side by side, so that no bar hides another
        places = np.maximum(lengths, 1) * np.exp(aside) if log else lengths + aside
        axis.plot(places, [score["value"] for score in scores], color=f"C{number % 7}")
        for place, score in zip(places, scores, strict=True):
            _bar(axis, place, score, number, horizontal=False)
        ends.append((float(places[-1]), scores[-1]["value"], name, f"C{number % 7}"))
    if log:
        axis.set_xscale("log")
    axis.set_xticks(lengths, _apart(np.log(np.maximum(lengths, 1)) if log else lengths, lengths))
    axis.set_xticks([], minor=True)
    axis.set_title(f"{key} by length", pad=15)
    line_above(axis, "tokens of the documents, median of each group", "0.3")
    label_lines(axis, ends)


def _apart(places: np.ndarray, lengths: np.ndarray) -> list[str]:
    """Label each group with its length; labels that would overlap with the one before are left out."""
    labels, last = [], -np.inf
    for place, length in zip(places, lengths, strict=True):
        free = place - last >= _APART * np.ptp(places)
        labels.append(thousands(length) if free else "")
        last = place if free else last
    return labels


def _bar(axis: Any, place: float, score: Mapping[str, float], number: int, horizontal: bool) -> None:
    # the percentiles of resamples need not enclose the value, and a bar has no negative side
    sides = [[max(score["value"] - score["low"], 0)], [max(score["high"] - score["value"], 0)]]
    at, error = ((score["value"], place), "xerr") if horizontal else ((place, score["value"]), "yerr")
    axis.errorbar([at[0]], [at[1]], fmt="o", markersize=4, capsize=2, color=f"C{number % 7}", **{error: sides})
