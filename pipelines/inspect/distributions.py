"""Distributions of an artefact's lengths, cluster sizes, hidden text and relatedness."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.printing import format_count
from corpora.schemas.corpus import Corpus
from corpora.schemas.pairs import PairSet
from corpora.schemas.vectors import vector_rows
from corpora.storage import files
from corpora.storage.arrow_views import items, numbers
from corpora.storage.manifest_file import NAME, find_parent, read_manifest
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows
from corpora.text.word_ngrams import ngram_hashes, redundancy
from corpora.tokenizers.load import load_tokenizer_of
from objectives.api.masks import IN_TARGET

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
        if places := places_of_masks(folder, rows):
            yield from (Distribution(name, values, "share") for name, values in zip(PLACES, places, strict=True))
    elif format == "farspan.documents":
        lengths, sources = _values(rows, _row_lengths("tokens"), _sources)
        yield from _by_source("document length", lengths, sources)
    elif format == "farspan.pairs":
        yield from _of_pairs(PairSet(folder, verify=True))
    elif format == "farspan.predictions":
        (lengths,) = _values(rows, _row_lengths("tokens"))
        yield Distribution("prediction length", lengths, "tokens")
    elif format == "farspan.corpus":
        lengths, parts, sources = _values(
            rows, _row_lengths("tokens"), lambda batch: np.diff(_part_edges(batch)), _part_sources
        )
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
    (queries,) = _values(pairs, _row_lengths("query"))
    (lengths,) = _values(pairs.documents, _row_lengths("tokens"))
    rows = pairs.document_rows.compact()
    return queries, np.diff(np.append(0, np.cumsum(lengths[rows.values]))[rows.offsets])


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


def _part_edges(batch: pa.RecordBatch) -> np.ndarray:
    """First token of each part among the tokens of all rows, and their number, ``(parts + 1,)``."""
    tokens = Ragged.from_arrow(batch.column("tokens")).compact()
    starts = Ragged.from_arrow(batch.column("document_starts")).compact()
    return np.append(starts.values + np.repeat(tokens.offsets[:-1], starts.lengths), tokens.offsets[-1])


def sample_rows(count: int, sample: int, seed: int = 0) -> np.ndarray:
    """Draw ``(min(count, sample),)`` row numbers, ascending."""
    if count <= sample:
        return np.arange(count)
    keys = id_keys(make_key(seed, "sample"), [str(row) for row in range(count)])[:, 0]
    return np.sort(np.argsort(keys, kind="stable")[:sample])


def redundancy_of(corpus: Corpus, rows: np.ndarray) -> np.ndarray:
    """Share of each row's word 5-grams that an earlier part of it has too: ``(rows,)``, 0 where there are none.

    A span that is hidden in such words can be copied from elsewhere in the sequence (BART-LS, section 5, on why linked
    text trained no better).
    """
    batch, tokenizer = corpus.take(rows), load_tokenizer_of(corpus.folder)
    parts = (np.split(tokens, starts[1:]) for tokens, starts in zip(batch.tokens, batch.document_starts, strict=True))
    hashes = ngram_hashes([tokenizer.decode(part) for of_row in parts for part in of_row])
    repeated, total = redundancy(hashes, batch.document_starts.compact().offsets)
    return repeated / np.maximum(total, 1)


def similarity_of(corpus: Corpus, rows: np.ndarray, vectors: str) -> np.ndarray:
    """Mean cosine between the documents of each row, over all pairs: ``(rows,)``, nan for a row of one document."""
    import pyarrow.compute as pc  # slow to import, and only similarities need it

    batch = corpus.take(rows)
    ids = batch.document_ids.flatten().unique()
    units = _unit_vectors(ShardedRows(vectors, "farspan.vectors", verify=True), ids)
    # document of each part, as an index into `ids`
    parts = Ragged(pc.index_in(batch.document_ids.flatten(), ids).to_numpy(), batch.document_starts.compact().offsets)
    means = np.full(len(batch), np.nan)
    for row in range(len(batch)):
        row_units = units[np.unique(parts[row])]  # (documents, d)
        count = len(row_units)
        if count > 1:
            total = float(np.square(row_units.sum(axis=0)).sum())  # all cosines, also of each document with itself
            means[row] = (total - count) / (count * (count - 1))
    return means


def _unit_vectors(rows: ShardedRows, ids: pa.Array) -> np.ndarray:
    """Unit vectors of the documents ``ids``: ``(ids, d)`` float32."""
    import pyarrow.compute as pc

    vectors = np.full((len(ids), rows.manifest.config["dimension"]), np.nan, np.float32)
    for batch in rows.batches():
        places = pc.index_in(batch.column("document_id"), ids)
        known = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        vectors[places.drop_null().to_numpy()] = vector_rows(batch.column("vector"))[known]
    missing = np.flatnonzero(np.isnan(vectors[:, 0]))
    if len(missing):
        first = ids[int(missing[0])].as_py()
        raise FarspanError(
            f"{rows.folder}: no vector of document {first!r} and {format_count(len(missing) - 1, 'other')}; "
            "give --vectors the artefact made from the same documents and split"
        )
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def places_of_masks(folder: str, masks: ShardedRows) -> tuple[np.ndarray, np.ndarray] | None:
    """Place of each target span in its row and in its document, from 0 to 1; both ``(spans,)`` float32.

    The place of a span is that of its middle. None if the corpus has moved or gone since the masks were made.
    """
    parent = find_parent(folder)
    if parent is None or not files.exists(os.path.join(parent, NAME)):
        return None
    corpus = ShardedRows(parent, "farspan.corpus")
    count = max(len(corpus.manifest.shards), 1)
    in_row, in_document = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    for shard, info in enumerate(masks.manifest.shards):
        for batch in range(-(-info.rows // masks.manifest.rows_per_batch)):
            hidden, text = masks.batch(shard, batch), corpus.batch(shard % count, batch)
            spans = [hidden.column(f"span_{name}") for name in ("starts", "lengths", "flags")]
            starts, sizes, flags = (Ragged.from_arrow(column).compact() for column in spans)
            in_target = flags.values & IN_TARGET != 0
            rows = np.repeat(np.arange(len(hidden)), starts.lengths)[in_target]
            middles = (starts.values + sizes.values / 2)[in_target]
            tokens, edges = Ragged.from_arrow(text.column("tokens")).compact(), _part_edges(text)
            in_row.append((middles / tokens.lengths[rows]).astype(np.float32))
            places = middles + tokens.offsets[rows]
            part = np.searchsorted(edges[:-1], places, side="right") - 1  # (spans,)
            in_document.append(((places - edges[part]) / (edges[part + 1] - edges[part])).astype(np.float32))
    return np.concatenate(in_row), np.concatenate(in_document)
