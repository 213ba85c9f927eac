"""Tokenised documents, from which every corpus is built; made once for each text and tokenizer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.schemas.sequences import Column, make_schema, token_dtype, token_list
from corpora.storage.arrow_views import booleans, validity
from corpora.storage.manifest import Manifest
from corpora.storage.ragged import Ragged
from corpora.storage.shard_cache import ShardCache
from corpora.storage.sharded_rows import ShardedRows
from corpora.text.sentences import SentenceSplitter, sentence_token_starts
from corpora.tokenizers.protocol import Tokenizer, special_ids

DOCUMENT_COLUMNS = {
    "document_id": Column(pa.string(), "`source:path:record`, unique"),
    "source": Column(pa.string(), "name of the input"),
    "cluster": Column(pa.int64(), "cluster of related documents that the input states, or null", nullable=True),
    "held_out": Column(pa.bool_(), "true: kept apart for evaluation"),
    "tokens": Column(token_list, "token ids of the text, without special tokens"),
    "sentence_starts": Column(pa.list_(pa.int32()), "first token of each sentence"),
    "title": Column(pa.string(), "title that the input states, or null", nullable=True),
}


def documents_schema(vocab_size: int, titles: bool = False) -> pa.Schema:
    """Return the columns of ``farspan.documents`` (docs/formats.md), with ``titles`` for documents that have some."""
    columns = {name: column for name, column in DOCUMENT_COLUMNS.items() if titles or name != "title"}
    return make_schema(columns, vocab_size)


def has_titles(manifest: Manifest) -> bool:
    """Return True if documents have the column ``title``: a source was read with ``title_field``."""
    reads = manifest.config.get("read")
    settings = reads.values() if isinstance(reads, Mapping) else ()  # it may have been edited
    return any(isinstance(read, Mapping) and bool(read.get("title_field")) for read in settings)


class DocumentSet(ShardedRows):
    """The documents 0 .. len-1 of a ``farspan.documents`` folder."""

    def __init__(
        self, folder: str, format: str = "farspan.documents", verify: bool = False, cache: ShardCache | None = None
    ) -> None:
        super().__init__(folder, format, verify, cache)
        self.schema = documents_schema(self.manifest.tokenizer["vocab_size"], has_titles(self.manifest))

    def title(self, row: int) -> str | None:
        """Return the title of a document; None if the input states none."""
        if not has_titles(self.manifest):
            return None
        shard, batch, inside = self.locate_row(row)
        text: str | None = self.batch(shard, batch).column("title")[inside].as_py()
        return text

    def take(self, rows: Sequence[int] | np.ndarray) -> pa.Table:
        """Return the given documents, in the given order, with the columns of ``documents_schema``."""
        return self.table(rows)


def open_documents(folder: str | os.PathLike[str], *, verify: bool = False) -> DocumentSet:
    """Open tokenised documents.

    Args:
        folder: folder written by ``farspan documents``.
        verify: compare each shard with its checksum on first use.

    Raises:
        FarspanError: no finished documents there.
    """
    return DocumentSet(os.fspath(folder), verify=verify)


DOCUMENT_TOTALS = (
    "documents",
    "clustered_documents",
    "tokens",
    "sentences",
    "held_out_documents",
    "held_out_clustered_documents",
    "held_out_tokens",
    "max_tokens",
)


def add_document_totals(totals: dict[str, int], batch: pa.RecordBatch) -> None:
    """Add the counts of a batch of ``documents_schema`` to ``totals``, which has all ``DOCUMENT_TOTALS``."""
    lengths = Ragged.from_arrow(batch.column("tokens")).lengths
    held = booleans(batch.column("held_out"))
    clustered = validity(batch.column("cluster"))
    totals["documents"] += len(batch)
    totals["clustered_documents"] += int(clustered.sum())
    totals["tokens"] += int(lengths.sum())
    totals["sentences"] += int(Ragged.from_arrow(batch.column("sentence_starts")).lengths.sum())
    totals["held_out_documents"] += int(held.sum())
    totals["held_out_clustered_documents"] += int((held & clustered).sum())
    totals["held_out_tokens"] += int(lengths[held].sum())
    totals["max_tokens"] = max(totals["max_tokens"], int(lengths.max(initial=0)))


@dataclass(frozen=True)
class HeldOut:
    """The choice of held-out documents, drawn by cluster, or by id for documents without one.

    Documents of a cluster share their subject, so a cluster is held out as a whole: otherwise test documents would
    resemble training documents.
    """

    fraction: float  # share of documents, 0 <= fraction < 1
    seed: int  # of the draws

    def __post_init__(self) -> None:
        if not 0 <= self.fraction < 1:
            raise FarspanError(f"held-out fraction {self.fraction}: give a share of documents, 0 <= fraction < 1")

    def select(self, document_ids: Sequence[str], clusters: pa.Array | None = None) -> np.ndarray:
        """Return ``(n,)`` bool: True for the held-out documents.

        ``clusters``: ``(n,)`` int64, null for a document in no cluster; None if no document is in one.
        """
        if not self.fraction:
            return np.zeros(len(document_ids), bool)
        numbers = [None] * len(document_ids) if clusters is None else clusters.to_pylist()
        names = [
            name if number is None else f"cluster {number}" for name, number in zip(document_ids, numbers, strict=True)
        ]
        draws = id_keys(make_key(self.seed, "held-out"), names)[:, 0]
        return draws < np.uint64(min(int(self.fraction * 2.0**64), 2**64 - 1))


def cluster_numbers(names: Sequence[str | None]) -> pa.Array:
    """Hash each cluster name to a number of 63 bits, ``(n,)`` int64, null for None."""
    if all(name is None for name in names):
        return pa.nulls(len(names), pa.int64())
    numbers = id_keys(make_key(0, "cluster"), [name or "" for name in names])[:, 0] >> np.uint64(1)
    return pa.array(numbers.astype(np.int64), mask=np.array([name is None for name in names], bool))


def rows_with_special_tokens(tokens: Ragged, owned_tokens: Mapping[str, int]) -> np.ndarray:
    """Return ``(n,)`` bool: True for rows that contain an id of ``special_ids``, which no text should."""
    held = np.flatnonzero(np.isin(tokens.values, special_ids(owned_tokens)))
    rows = np.zeros(len(tokens), bool)
    rows[np.searchsorted(tokens.offsets, held, side="right") - 1] = True
    return rows


def tokenize_documents(
    document_ids: Sequence[str],
    texts: list[str],
    source: str,
    tokenizer: Tokenizer,
    splitter: SentenceSplitter,
    held_out: HeldOut,
    clusters: Sequence[str | None] | None = None,
    titles: Sequence[str | None] | None = None,
) -> pa.RecordBatch:
    """Turn a block of n texts into n rows of ``documents_schema``.

    A sentence starts at the first token that starts at or after the sentence's first character. White space between two
    sentences belongs to the second, as it does in tokens; a token across a boundary belongs to the earlier sentence.

    ``clusters``: name of the cluster of related documents of each text; None for a text without one. ``titles``: title
    of each text, None for a text without one; None for rows without the column.
    """
    # tokens: n rows of ids; starts: n rows, the UTF-8 byte at which each token starts
    tokens, starts = tokenizer.encode_with_starts(texts)
    sentences = sentence_token_starts(starts, splitter.byte_boundaries(texts))
    schema = documents_schema(tokenizer.vocab_size, titles is not None)
    kind = schema.field("tokens").type
    numbers = cluster_numbers(clusters or [None] * len(texts))
    columns = [
        pa.array(document_ids, pa.string()),
        pa.array([source] * len(texts), pa.string()),
        numbers,
        pa.array(held_out.select(document_ids, numbers)),
        Ragged(tokens.values.astype(token_dtype(tokenizer.vocab_size)), tokens.offsets).to_arrow(kind),
        sentences.to_arrow(pa.list_(pa.int32())),
    ]
    if titles is not None:
        columns.append(pa.array(titles, pa.string()))
    return pa.record_batch(columns, schema=schema)
