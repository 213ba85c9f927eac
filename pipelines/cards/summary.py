"""The summary line of a job, and numbers derived from a manifest alone."""

from __future__ import annotations

from corpora.printing import format_count, format_total
from corpora.schemas.corpus import DocumentUse
from corpora.storage.manifest import Manifest

_MAXIMA_OF = {
    "farspan.documents": "document",
    "farspan.corpus": "sequence",
    "farspan.masks": "sequence",
    "farspan.clusters": "cluster",
    "farspan.pairs": "pair",
    "farspan.predictions": "text",
}
"""Format -> what the totals ``max_...`` are maxima over."""


def summary(manifest: Manifest) -> str:
    """Describe a finished artefact in one line: its totals, and the documents that were left out."""
    totals = _totals(manifest) if manifest.rows else "EMPTY, no row was written"
    if manifest.format == "farspan.corpus":
        totals += f"; {padding_share(manifest):.2%} of positions are padding"
    totals += "".join(f"; {name.replace('_', ' ')} {value:.3f}" for name, value in shares(manifest).items())
    totals += _filtered(manifest)
    if manifest.format == "farspan.masks" and 0 < manifest.totals["sequences"] == manifest.totals["unmasked"]:
        totals += "; warning: NO row has a target token, and training refuses such masks; choose options that hide some"
    if draws := _equal_draws(manifest):
        totals += f"; all {draws} draws are equal, as the objective draws nothing: one would do"
    if reason := manifest.config.get("mixture", {}).get("reason"):
        totals += f"; {reason}"
    rejected = sum(manifest.rejects.values())
    return totals + (f"; {rejected:,} rejected, see rejects/" if rejected else "")


def _totals(manifest: Manifest) -> str:
    """Describe all totals but zeros: first the sums, then the maxima."""
    shown = {name: format_total(value, name) for name, value in manifest.totals.items() if value}
    sums = [words for name, words in shown.items() if not name.startswith("max_")]
    maxima = [words for name, words in shown.items() if name.startswith("max_")]
    each = _MAXIMA_OF.get(manifest.format, "row")
    return ", ".join(sums) + (f"; at most {' and '.join(maxima)} in a {each}" if maxima else "")


def _filtered(manifest: Manifest) -> str:
    """Number of good records that have no row of their own, and the reason."""
    filtered, read = (sum(count[name] for count in manifest.counts.values()) for name in ("filtered", "read"))
    if not filtered:
        return ""
    if manifest.format == "farspan.pairs":
        are = "is a further answer" if filtered == 1 else "are further answers"
        return f"; {filtered:,} of {format_count(read, 'record')} {are} of a pair"
    why: str | None = "too short"
    if manifest.format == "farspan.corpus":
        why = DocumentUse.of(manifest).left_out
    elif manifest.config.get("repeats"):
        why = "repeated or too short"
    return f"; {filtered:,} of {format_count(read, 'document')} left out ({why})"


def _equal_draws(manifest: Manifest) -> int:
    """Number of draws of a mask set if all are equal, else 0."""
    draws = manifest.config["draws"] if manifest.format == "farspan.masks" else 1
    checksums = [shard.sha256 for shard in manifest.shards]
    return draws if draws > 1 and checksums[: len(checksums) // draws] * draws == checksums else 0


def padding_share(manifest: Manifest) -> float:
    """Return the share of a corpus's positions that are padding when rows are rendered without masks."""
    positions = manifest.totals["sequences"] * manifest.config["sequence_length"]
    return manifest.totals["padding"] / positions if positions else 0.0


def shares(manifest: Manifest) -> dict[str, float]:
    """Skew of clusters (the largest against the mean), and recall of a neighbour search."""
    totals = manifest.totals
    shares: dict[str, float] = {}
    if totals.get("clusters") and "max_documents" in totals:
        shares["skew"] = totals["max_documents"] * totals["clusters"] / max(totals["documents"], 1)
    if totals.get("sampled_neighbours"):
        shares["recall"] = totals["sampled_found"] / totals["sampled_neighbours"]
        shares["recall_of_search"] = totals["sampled_found"] / max(totals["sampled_in_cluster"], 1)
        shares["lost_at_cluster_borders"] = 1 - totals["sampled_in_cluster"] / totals["sampled_neighbours"]
    return shares
