"""``farspan stats``: numbers that describe artefacts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from corpora.errors import FarspanError
from corpora.printing import printable
from corpora.reporting import note, print_table, result
from corpora.schemas.pairs import PairSet
from corpora.storage.manifest import FILE_COUNTS
from corpora.storage.manifest_file import read_manifest
from pipelines.cards.card import padding_share, shares
from pipelines.figures import check_figure
from pipelines.inspect.distributions import Distribution, distributions, pair_lengths
from pipelines.inspect.histograms import LENGTHS, draw
from pipelines.inspect.options import Stats
from pipelines.pages.subjects import is_run

_ANCESTRY = ["documents", "vectors", "clusters", "neighbours", "corpus", "masks", "pairs", "predictions", "export"]
"""Formats, each after those that it is made from: the order of the columns."""


def statistics(folder: str, columns: Sequence[Distribution], lengths: Sequence[int] = ()) -> dict[str, Any]:
    """Compute the numbers of an artefact: totals, shares, and quantiles of its distributions."""
    manifest = read_manifest(folder)
    totals = manifest.totals
    numbers: dict[str, Any] = {"folder": folder, "format": manifest.format, **totals}
    if manifest.format == "farspan.corpus":
        numbers["padding_share"] = padding_share(manifest)
        numbers["documents_per_sequence"] = totals["parts"] / max(totals["sequences"], 1)
    if manifest.format == "farspan.pairs":
        numbers |= count_cut_pairs(PairSet(folder), lengths or LENGTHS)
    numbers |= shares(manifest)
    numbers["bytes"] = manifest.bytes
    for one in columns:
        name = "_".join(filter(None, (one.name.replace(" ", "_"), one.source and f"of_{one.source}")))
        numbers[name] = _summary(one.values) if len(one.values) else {}
    numbers["counts"] = {source: dict(count) for source, count in manifest.counts.items()}
    numbers["rejects"] = dict(manifest.rejects)
    return numbers


def _summary(values: np.ndarray) -> dict[str, float]:
    """Mean, quantiles and maximum (LongT5, tables 1 and 3, have mean, median, p90 and maximum)."""
    quantiles = {f"p{q}": float(np.percentile(values, q)) for q in (5, 50, 90, 95)}
    return {"mean": float(values.mean()), **quantiles, "max": float(values.max())}


def count_cut_pairs(pairs: PairSet, lengths: Sequence[int]) -> dict[str, dict[str, float]]:
    """Count the pairs that a source of each length would cut, and the share of their documents' tokens left out.

    A source is the query followed by the documents; special tokens are not counted, and a document counts for each of
    its pairs.
    """
    queries, documents = pair_lengths(pairs)
    numbers = {}
    for length in lengths:
        beyond = np.clip(queries + documents - length, 0, documents)
        share = float(beyond.sum() / max(documents.sum(), 1))
        numbers[f"cut_at_{length}"] = {"pairs": int((beyond > 0).sum()), "share_of_document_tokens": share}
    return numbers


def stats(
    folder: str | os.PathLike[str], sample: int = 256, vectors: str | None = None, lengths: Sequence[int] = ()
) -> dict[str, Any]:
    """Compute the numbers of an artefact: totals, shares, and quantiles of lengths and relatedness.

    Args:
        sample: number of sequences read for redundancy and similarity.
        vectors: folder made by ``farspan embed``, for the similarity of documents inside sequences.
        lengths: for pairs: source lengths in tokens; the pairs that each would cut are counted (default: 4,096 and
            16,384).

    Raises:
        FarspanError: the folder has no finished artefact, or is a run.
    """
    place = os.fspath(folder)
    _check_no_run(place)
    return statistics(place, list(distributions(place, sample, vectors)), lengths)


def command(options: Stats) -> None:
    """Run ``farspan stats``."""
    if options.figure:
        check_figure(options.figure)
    for folder in options.artefact:
        _check_no_run(folder)
    computed = {folder: list(distributions(folder, options.sample, options.vectors)) for folder in options.artefact}
    numbers = [statistics(folder, columns, options.lengths) for folder, columns in computed.items()]
    numbers.sort(key=lambda one: _ANCESTRY.index(one["format"].removeprefix("farspan.")))
    if not options.print_rows("statistics", f"statistics of {', '.join(options.artefact)}", numbers):
        print_stats(numbers)
    if options.figure:
        draw([(folder, one) for folder, columns in computed.items() for one in columns], options.figure)
        tell = note if options.for_programs else result
        tell(f"figure: {options.figure}", figure=options.figure)


def _check_no_run(folder: str) -> None:
    if is_run(folder):
        raise FarspanError(f"{folder}: is a run; `farspan runs` and `farspan plot` show its numbers")


def print_stats(columns: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with one column per artefact."""
    table = Table()
    table.add_column("")
    names = [
        name for name in dict.fromkeys(key for column in columns for key in column) if name not in ("folder", "counts")
    ]
    for column in columns:
        table.add_column(Text(printable(str(column["folder"]))), justify="right", overflow="fold")
    for name in names:
        table.add_row(Text(printable(name.replace("_", " "))), *(_cell(column.get(name)) for column in columns))
    for source in dict.fromkeys(source for column in columns for source in column["counts"]):
        counts = [column["counts"].get(source, {}) for column in columns]
        pairs = all(column["format"] == "farspan.pairs" for column in columns if source in column["counts"])
        for title, of_files in (("records" if pairs else "documents", False), ("files", True)):
            parts = [
                {key.replace("_", " "): n for key, n in row.items() if (key in FILE_COUNTS) == of_files}
                for row in counts
            ]
            if any(parts):
                table.add_row(Text(printable(f"{title} of {source}")), *(_cell(part or None) for part in parts))
    print_table(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        # a count of 0 is left out, but a percentile of 0 is not
        shown = {key: number for key, number in value.items() if number or isinstance(number, float)}
        if not any(shown.values()):
            return "0"
        return ", ".join(f"{key.replace('_', ' ')} {_number(number)}" for key, number in shown.items())
    return value if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    """Format a number: whole ones and those from 10 on without decimals, others with at most four digits."""
    if abs(value) >= 10 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"
