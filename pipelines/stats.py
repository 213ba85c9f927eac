"""``farspan stats``: what an artefact holds, in numbers and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from corpora.errors import FarspanError
from corpora.files import LocalFiles
from corpora.manifest import Manifest, read_manifest
from corpora.ragged import Ragged
from corpora.shards import ShardedRows


def summary(manifest: Manifest) -> str:
    """One line on a finished job: what it holds, and what was left out."""
    if not any(shard.rows for shard in manifest.shards):
        totals = "EMPTY, no row was written"
    else:
        totals = ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in manifest.totals.items() if value)
    if manifest.format == "farspan.corpus":
        totals += f"; {padding_share(manifest):.2%} of positions are padding"
    left_out = sum(count["filtered"] for count in manifest.counts.values())
    if left_out:
        read = sum(count["read"] for count in manifest.counts.values())
        totals += f"; {left_out:,} of {read:,} documents left out (too short, too long, or in a dropped tail)"
    rejected = sum(manifest.rejects.values())
    return totals + (f"; {rejected:,} rejected, see rejects/" if rejected else "")


def padding_share(manifest: Manifest) -> float:
    """Share of a corpus's positions that stay empty when rows are rendered without a mask."""
    positions = manifest.totals["sequences"] * manifest.config["sequence_length"]
    return manifest.totals["padding"] / positions if positions else 0.0


def statistics(folder: str) -> dict[str, Any]:
    """Numbers of an artefact: totals, shares, and quantiles of its lengths in tokens.

    Raises:
        FarspanError: no finished artefact there.
    """
    manifest = read_manifest(LocalFiles(), folder)
    totals = manifest.totals
    found: dict[str, Any] = {"folder": folder, "format": manifest.format, **totals}
    if manifest.format == "farspan.corpus":
        found["padding_share"] = padding_share(manifest)
        found["documents_per_sequence"] = totals["parts"] / max(totals["sequences"], 1)
    found["bytes"] = sum(shard.bytes for shard in manifest.shards)
    for name, values in lengths(folder).items():
        found[name] = {f"p{q}": float(np.percentile(values, q)) for q in (5, 50, 95)} if len(values) else {}
    found["counts"] = {source: dict(count) for source, count in manifest.counts.items()}
    found["rejects"] = dict(manifest.rejects)
    return found


def lengths(folder: str) -> dict[str, np.ndarray]:
    """Name -> ``(n,)`` lengths in tokens: of documents, sequences, or rendered sources, targets and hidden spans."""
    rows = ShardedRows(folder, read_manifest(LocalFiles(), folder).format)
    batches = [
        rows.batch(shard, batch)
        for shard in range(len(rows.manifest.shards))
        for batch in range(rows.shard(shard)[1].num_record_batches)
    ]

    def joined(values: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(values) if values else np.empty(0, np.int64)

    if rows.manifest.format == "farspan.masks":
        return {
            "source_length": joined([batch.column("source_length").to_numpy() for batch in batches]),
            "target_length": joined([batch.column("target_length").to_numpy() for batch in batches]),
            "span_length": joined([Ragged.from_arrow(b.column("span_lengths")).compact().values for b in batches]),
        }
    name = "document_length" if rows.manifest.format == "farspan.documents" else "sequence_length"
    found = {name: joined([Ragged.from_arrow(batch.column("tokens")).lengths for batch in batches])}
    if rows.manifest.format == "farspan.corpus":
        found["part_length"] = joined([_part_lengths(batch) for batch in batches])
    return found


def _part_lengths(batch: Any) -> np.ndarray:
    """``(parts,)`` tokens of each part: from one part's beginning to the next one's, in the flat tokens."""
    tokens = Ragged.from_arrow(batch.column("tokens")).compact()
    starts = Ragged.from_arrow(batch.column("document_starts")).compact()
    flat = starts.values + np.repeat(tokens.offsets[:-1], starts.lengths)
    return np.diff(np.append(flat, tokens.offsets[-1]))


def print_stats(found: Sequence[Mapping[str, Any]]) -> None:
    """One table, a column an artefact."""
    table = Table()
    table.add_column("")
    names = [
        name for name in dict.fromkeys(key for column in found for key in column) if name not in ("folder", "counts")
    ]
    for column in found:
        table.add_column(str(column["folder"]), justify="right", overflow="fold")
    for name in names:
        table.add_row(name.replace("_", " "), *(_cell(column.get(name)) for column in found))
    for source in dict.fromkeys(source for column in found for source in column["counts"]):
        table.add_row(f"documents of {source}", *(_cell(column["counts"].get(source)) for column in found))
    Console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {number:,.0f}" for key, number in value.items() if number) or "0"
    return value if isinstance(value, str) else f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"


def draw_lengths(folders: Sequence[str], path: str) -> None:
    """Draw the length distributions of artefacts as histograms over log lengths, one panel a kind of length.

    Raises:
        FarspanError: all are empty.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(folder, name, values) for folder in folders for name, values in lengths(folder).items() if len(values)]
    if not panels:
        raise FarspanError(f"{', '.join(folders)}: no row, so no lengths to draw; leave --figure out")
    figure, axes = plt.subplots(len(panels), 1, figsize=(8, 2.4 * len(panels)), squeeze=False, layout="constrained")
    for axis, (folder, name, values) in zip(axes[:, 0], panels, strict=True):
        low, high = max(values.min(), 1), max(values.max(), 2)
        axis.hist(values, bins=np.geomspace(low * 0.9, high * 1.1, 60), color="#33669a")
        axis.set_xscale("log")
        axis.axvline(np.median(values), color="#c0392b", linewidth=1)
        axis.set_title(f"{folder}: {name.replace('_', ' ')}, median {np.median(values):,.0f} tokens", fontsize=9)
        axis.set_ylabel("count")
    axes[-1, 0].set_xlabel("tokens")
    figure.savefig(path, dpi=120)
    plt.close(figure)
