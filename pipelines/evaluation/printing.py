"""The table of ``farspan evaluate`` on a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpora.printing import format_count, printable
from objectives.metrics.copies import COPIED_NGRAM


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
    title = f"{COPIED_NGRAM}-grams found in the source"
    shown.add_row(title, *("" if system[key] is None else f"{system[key]:.1%}" for system in systems))
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
    across, down = [*table["groups"]][1:3]  # after those by source length
    columns, rows = ([group["name"] for group in table["groups"][name]] for name in (across, down))
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
