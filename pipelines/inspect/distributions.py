"""Distributions of an artefact's lengths, cluster sizes, hidden text and relatedness."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet
from corpora.storage.arrow_views import items, numbers
from corpora.storage.manifest_file import read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from pipelines.inspect.coherence import redundancy_of, sample_rows, similarity_of
from pipelines.masks.places import places_of_masks

PLACES = ("hidden text in its row", "hidden text in its document")


@dataclass(frozen=True)
class Distribution:
    """``(n,)`` values of one kind.

    ``unit`` is ``tokens`` for lengths, ``documents`` or ``references`` for sizes, ``share``, ``cosine`` or ``inner
    product``. If there are several sources or splits, ``source`` names the one that the values belong to.
    """

    name: str
    values: np.ndarray
    unit: str
    source: str = ""


def distributions(folder: str, sample: int = 256, vectors: str | None = None) -> Iterator[Distribution]:
    """Compute the distributions of an artefact; relatedness in a corpus for ``sample`` sequences."""
    format = read_manifest(folder).format
    rows = ShardedRows(folder, format, verify=True)
    if format == "farspan.masks":
        source, target, spans = _values(rows, _column("source_length"), _column("target_length"), _span_lengths)
        yield Distribution("source length", source, "tokens")
        yield Distribution("target length", target, "tokens")
        yield Distribution("span length", spans, "tokens")
        yield from hidden_places(folder, rows)
    elif format == "farspan.documents":
        lengths, sources = _values(rows, _row_lengths("tokens"), _sources)
        yield from _by_source("document length", lengths, sources)
    elif format == "farspan.pairs":
        yield from _of_pairs(PairSet(folder, verify=True))
    elif format == "farspan.predictions":
        (lengths,) = _values(rows, _row_lengths("tokens"))
        yield Distribution("prediction length", lengths, "tokens")
    elif format == "farspan.corpus":
        lengths, parts, sources = _values(rows, _row_lengths("tokens"), _part_lengths, _part_sources)
        yield Distribution("sequence length", lengths, "tokens")
        yield from _by_source("part length", parts, sources)
        yield from _relatedness(Corpus(folder, verify=True), sample, vectors)
    elif format == "farspan.vectors":
        (lengths,) = _values(rows, _column("document_tokens"))
        yield Distribution("document length", lengths, "tokens")
    elif format in ("farspan.clusters", "farspan.neighbours"):
        lengths, clusters = _values(rows, _column("document_tokens"), _column("cluster_id"))
        yield Distribution("document length", lengths, "tokens")
        yield Distribution("cluster size", np.unique(clusters, return_counts=True)[1], "documents")
    if format == "farspan.neighbours":
        (similarities,) = _values(rows, _nearest)
        yield Distribution("similarity of the nearest", similarities, "inner product")


def pair_lengths(pairs: PairSet) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of the query of each of n pairs, and of its documents together: ``(n,)`` int64 each."""
    (lengths,) = _values(pairs.documents, _row_lengths("tokens"))

    def of_documents(batch: pa.RecordBatch) -> np.ndarray:
        rows = Ragged.from_arrow(batch.column("document_rows")).compact()
        return np.diff(np.append(0, np.cumsum(lengths[rows.values]))[rows.offsets])

    queries, documents = _values(pairs, _row_lengths("query"), of_documents)
    return queries, documents


def _of_pairs(pairs: PairSet) -> Iterator[Distribution]:
    """Lengths of queries, targets and documents, by split, and the number of references."""
    queries, documents = pair_lengths(pairs)
    targets, references = _values(
        pairs,
        lambda batch: Ragged.from_arrow(items(batch.column("targets"))).lengths,
        lambda batch: batch.column("references").value_lengths().to_numpy(),
    )
    yield from _by_source("query length", queries, pairs.splits)
    yield from _by_source("length of a pair's documents", documents, pairs.splits)
    yield from _by_source("target length", targets, np.repeat(pairs.splits, pairs.target_counts))
    yield Distribution("references of a pair", references, "references")


def _by_source(name: str, values: np.ndarray, sources: np.ndarray) -> Iterator[Distribution]:
    """One distribution of all ``(n,)`` values, or one per source (or split) if there are several."""
    names = sorted(set(sources.tolist()))
    if len(names) < 2:
        yield Distribution(name, values, "tokens")
        return
    for source in names:
        yield Distribution(name, values[sources == source], "tokens", source)


def hidden_places(folder: str, masks: ShardedRows) -> Iterator[Distribution]:
    """Places of hidden text, if the corpus of the masks has not moved."""
    places = places_of_masks(folder, masks)
    for name, values in zip(PLACES, places or (), strict=bool(places)):
        yield Distribution(name, values, "share")


def _relatedness(corpus: Corpus, sample: int, vectors: str | None) -> Iterator[Distribution]:
    rows = sample_rows(len(corpus), sample)
    if not len(rows):
        return
    yield Distribution("redundancy", redundancy_of(corpus, rows), "share")
    if vectors is not None:
        similarity = similarity_of(corpus, rows, vectors)
        yield Distribution("similarity inside a sequence", similarity[~np.isnan(similarity)], "cosine")


def _values(rows: ShardedRows, *of_batch: Callable[[pa.RecordBatch], np.ndarray]) -> list[np.ndarray]:
    """Apply each function to all rows in one pass over the shards; views of a shard are copied."""
    batches = [[np.array(function(batch)) for function in of_batch] for batch in rows.batches()]
    none = [np.empty(0, np.int64) for _ in of_batch]
    return [np.concatenate(values) for values in zip(*batches, strict=True)] or none


def _column(name: str) -> Callable[[pa.RecordBatch], np.ndarray]:
    return lambda batch: numbers(batch.column(name))


def _row_lengths(name: str) -> Callable[[pa.RecordBatch], np.ndarray]:
    return lambda batch: Ragged.from_arrow(batch.column(name)).lengths


def _sources(batch: pa.RecordBatch) -> np.ndarray:
    """Source of each document, ``(n,)`` str."""
    return np.array(batch.column("source").to_pylist(), object)


def _span_lengths(batch: pa.RecordBatch) -> np.ndarray:
    return Ragged.from_arrow(batch.column("span_lengths")).compact().values


def _nearest(batch: pa.RecordBatch) -> np.ndarray:
    """Similarity of the nearest neighbour of each row that has one, ``(n,)`` float32."""
    column = batch.column("similarities")
    rows = Ragged(column.values.to_numpy(), column.offsets.to_numpy())
    return rows.values[rows.offsets[:-1][rows.lengths > 0]].astype(np.float32)


def _part_sources(batch: pa.RecordBatch) -> np.ndarray:
    """Source of the document of each part, ``(parts,)`` str."""
    names = items(batch.column("document_ids")).to_pylist()
    return np.array([name.partition(":")[0] for name in names], object)


def _part_lengths(batch: pa.RecordBatch) -> np.ndarray:
    """Tokens of each part, ``(parts,)``: from one start to the next in the flat tokens."""
    tokens = Ragged.from_arrow(batch.column("tokens")).compact()
    starts = Ragged.from_arrow(batch.column("document_starts")).compact()
    flat = starts.values + np.repeat(tokens.offsets[:-1], starts.lengths)
    return np.diff(np.append(flat, tokens.offsets[-1]))
