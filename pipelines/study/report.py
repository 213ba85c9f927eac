"""Tables of a study as text, JSON, CSV, LaTeX and a figure."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from corpora.printing import format_count
from corpora.storage.files import write_bytes
from pipelines.engine.job import WORK
from pipelines.figures import grid, save, use_style

STAGES, TABLE = "stages", "table.json"
"""Name of the folder of artefacts and runs, and of the tables as JSON, in the folder of a study."""
FILES = ("table.txt", TABLE, "table.csv", "table.tex")
Table = Mapping[str, Any]
_COLUMNS = ("value", "difference", "low", "high", "significant")


def is_study(folder: str) -> bool:
    """True for the folder of a study, also of an unfinished one."""
    return all(os.path.exists(os.path.join(folder, name)) for name in (STAGES, os.path.join(WORK, "job.json")))


def write_tables(tables: Sequence[Table], output: str) -> None:
    """Write ``FILES``."""
    texts = (
        format_text(tables),
        json.dumps(tables, indent=1) + "\n",
        _format_csv(tables),
        "\n".join(map(_format_latex, tables)),
    )
    for name, text in zip(FILES, texts, strict=True):
        write_bytes(os.path.join(output, name), text.encode())


def format_text(tables: Sequence[Table]) -> str:
    """Format tables for readers; ``*`` marks a difference whose interval excludes 0."""
    return "\n".join(map(_format_table, tables))


def _format_table(table: Table) -> str:
    size = format_count(len(table["seeds"]), "seed")
    if table["examples"]:
        size += f", {format_count(table['examples'], 'example')}"
    lines = [f"{table['metric']} ({table['flavour']}), {size}"]
    width = max(len(row["arm"]) for row in table["rows"]) + 2
    lines.append(f"{'arm':<{width}}{'value':>9}  {'difference to ' + table['baseline']}")
    lines += [f"{row['arm']:<{width}}{row['value']:>9.3f}  {_format_difference(row)}".rstrip() for row in table["rows"]]
    best = table["best"]
    lines.append(f"interval: {table['interval']}")
    lines.append(
        f"best ({table['better']}): {best['arm']}, of {format_count(best['arms'], 'arm')} and "
        f"{format_count(best['trials'], 'trial')}; the best of several is too good by chance"
    )
    return "\n".join(lines) + "\n"


def _format_difference(row: Mapping[str, Any]) -> str:
    if row["difference"] is None:
        return ""
    text = f"{row['difference']:+.3f}"
    if row["low"] is not None:
        text += f"  [{row['low']:+.3f}, {row['high']:+.3f}]{' *' if row['significant'] else ''}"
    return text


def _format_csv(tables: Sequence[Table]) -> str:
    axes = [key for key in tables[0]["rows"][0] if key not in ("arm", *_COLUMNS, "values", "differences")]
    seeds = tables[0]["seeds"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", "arm", *axes, *_COLUMNS, *(f"seed {seed}" for seed in seeds)])
    for table in tables:
        for row in table["rows"]:
            writer.writerow([table["metric"], *(row[key] for key in ("arm", *axes, *_COLUMNS)), *row["values"]])
    return text.getvalue()


def _format_latex(table: Table) -> str:
    def escape(text: str) -> str:
        return text.replace("_", r"\_")

    lines = [
        f"% {table['metric']}; {table['flavour']}; interval: {table['interval']}; * excludes 0",
        r"\begin{tabular}{lrrl}",
        r"\hline",
        rf"{escape(table['metric'])} & value & difference & 95\% interval \\",
        r"\hline",
    ]
    for row in table["rows"]:
        cells = [escape(row["arm"]), f"{row['value']:.2f}", "", ""]
        if row["difference"] is not None:
            cells[2] = f"${row['difference']:+.2f}{'^{*}' if row['significant'] else ''}$"
        if row["low"] is not None:
            cells[3] = f"$[{row['low']:+.2f}, {row['high']:+.2f}]$"
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def differences_of(row: Mapping[str, Any], base: float) -> list[float]:
    """The difference of each seed; of the baseline, and without pairs, to ``base``, the baseline's mean."""
    return row["differences"] or [value - base for value in row["values"]]


def draw(tables: Sequence[Table], path: str) -> None:
    """Draw a panel for each table: intervals of the differences, and a dot for each seed."""
    with use_style() as plt:
        tall = 1.0 + 0.25 * len(tables[0]["rows"])
        figure, axes = grid(plt, len(tables), columns=2, panel=(4.4, tall))
        for axis, table in zip(axes, tables, strict=True):
            _panel(axis, table)
        save(plt, figure, path)


def _panel(axis: Any, table: Table) -> None:
    rows = table["rows"]
    base = next(row["value"] for row in rows if row["arm"] == table["baseline"])
    axis.axvline(0, color="0.8", linewidth=0.8, zorder=0)
    for place, row in enumerate(rows):
        dots = differences_of(row, base)
        axis.plot(dots, [place] * len(dots), "o", color="C0", markersize=3, alpha=0.5)
        if row["low"] is not None:
            axis.plot([row["low"], row["high"]], [place, place], color="C1" if row["significant"] else "0.5")
    axis.set_yticks(range(len(rows)), [row["arm"] for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.grid(visible=False, axis="y")
    axis.set_title(table["metric"])
    axis.set_xlabel(f"difference to {table['baseline']} ({base:.2f})")
