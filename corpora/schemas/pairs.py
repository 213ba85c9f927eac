"""Pairs: questions, or summaries to be written, about tokenised documents, with targets and references."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from corpora.schemas.sequences import token_dtype, token_list
from corpora.storage.manifest import Manifest
from corpora.storage.manifest_file import manifest_sha256
from corpora.storage.origins import parent_folder
from corpora.storage.ragged import Ragged
from corpora.storage.sharded_rows import ShardedRows

SPLITS = ("train", "validation", "test")
PAIR_TOTALS = ("pairs", "targets", "query_tokens", "target_tokens", "max_query_tokens", "max_target_tokens", *SPLITS)
"""Totals of a pairs artefact; those named after a split count its pairs."""


def pairs_schema(vocab_size: int) -> pa.Schema:
    """Return the columns of ``farspan.pairs`` (docs/formats.md): one row per question, with all its answers."""
    tokens = token_list(vocab_size)
    return pa.schema(
        [
            pa.field("pair_id", pa.string(), nullable=False),
            pa.field("document_ids", pa.list_(pa.string()), nullable=False),
            pa.field("document_rows", pa.list_(pa.int64()), nullable=False),
            pa.field("query", tokens, nullable=False),
            pa.field("options", pa.list_(tokens)),
            pa.field("targets", pa.list_(tokens), nullable=False),
            pa.field("references", pa.list_(pa.string()), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("attributes", pa.string(), nullable=False),  # a JSON object
        ]
    )


@dataclass(frozen=True, slots=True)
class PairBatch:
    """``n`` pairs and the tokens of their documents, each document once.

    Attributes:
        pair_ids: n ids.
        document_tokens: m rows of tokens, the distinct documents in the order of their first use.
        pair_documents: n rows of int64, the documents of each pair as rows of ``document_tokens``, in order.
        queries: n rows of tokens, empty if there is no query.
        targets: the targets of all pairs, one after the other.
        target_offsets: ``(n + 1,)`` int64; pair i has rows ``target_offsets[i]:target_offsets[i + 1]`` of ``targets``.
    """

    pair_ids: Sequence[str]
    document_tokens: Ragged
    pair_documents: Ragged
    queries: Ragged
    targets: Ragged
    target_offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.pair_ids)

    @property
    def keys(self) -> np.ndarray:
        """Hash of each pair id, ``(n, 16)`` uint8: the ``sequence_ids`` of rendered examples."""
        data = b"".join(pair_key(name) for name in self.pair_ids)
        return np.frombuffer(data, np.uint8).reshape(-1, 16)


def pair_key(pair_id: str) -> bytes:
    """Hash a pair id to the 16 bytes that identify the pair in batches and metrics."""
    return blake2b(pair_id.encode(), digest_size=16).digest()


def documents_folder(folder: str, manifest: Manifest) -> str:
    """Return the recorded folder of the documents that the pairs in ``folder`` are about.

    Raises:
        FarspanError: it is not recorded.
    """
    return parent_folder(folder, manifest, "--documents")


class PairSet(ShardedRows):
    """The pairs 0 .. len-1 of a ``farspan.pairs`` folder.

    Attributes:
        documents: the documents that the pairs are about.
    """

    def __init__(self, folder: str, documents: str | None = None, verify: bool = False) -> None:
        """
        Args:
            documents: folder of the documents; None for the recorded one.
            verify: compare each shard with its checksum on first use.

        Raises:
            FarspanError: no finished pairs there, or not the documents they were made from.
        """
        super().__init__(folder, "farspan.pairs", verify)
        self.schema = pairs_schema(self.manifest.tokenizer["vocab_size"])
        place = documents or documents_folder(folder, self.manifest)
        self.documents = DocumentSet(place, verify=verify)
        if manifest_sha256(place) != (self.manifest.parent or {})["manifest_sha256"]:
            raise FarspanError(
                f"{folder}: its pairs are about other documents than those in {place}; give the documents that they "
                "were made from, or run `farspan pairs` again"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "documents": self.documents.folder, "verify": self.verify}

    @cached_property
    def splits(self) -> np.ndarray:
        """Split of each pair, ``(len,)`` str."""
        columns = [batch.column("split").to_numpy(zero_copy_only=False) for batch in self.batches()]
        return np.concatenate([np.empty(0, object), *columns]).astype(str)

    def rows_of(self, split: str) -> np.ndarray:
        """Return the rows of ``split`` in stored order, ``(n,)`` int64.

        Raises:
            FarspanError: no pair is in it.
        """
        rows = np.flatnonzero(self.splits == split)
        if not len(rows):
            known = ", ".join(np.unique(self.splits).tolist()) or "none"
            raise FarspanError(f"{self.folder}: no pair is in split {split!r}; its splits: {known}")
        return rows

    @cached_property
    def target_counts(self) -> np.ndarray:
        """Number of targets of each pair, ``(len,)`` int64."""
        columns = [batch.column("targets").value_lengths().to_numpy() for batch in self.batches()]
        return np.concatenate([np.empty(0, np.int64), *columns]).astype(np.int64)

    def table(self, rows: Sequence[int] | np.ndarray) -> pa.Table:
        """Return the given rows, at least one, in the given order, with the columns of ``pairs_schema``.

        Raises:
            IndexError: a row outside ``[0, len)``.
        """
        places = zip(*(column.tolist() for column in self.locate(np.asarray(rows))), strict=True)
        found = [self.batch(shard, batch).slice(inside, 1) for shard, batch, inside in places]
        return pa.Table.from_batches(found, self.schema)

    def take(self, rows: Sequence[int] | np.ndarray) -> PairBatch:
        """Return the given rows, at least one, in the given order, with the tokens of their documents.

        Raises:
            IndexError: a row outside ``[0, len)``.
        """
        columns = self.table(rows).combine_chunks()
        kind = token_dtype(self.manifest.tokenizer["vocab_size"])
        document_rows = _ragged(columns, "document_rows")
        # the distinct documents in the order of their first use
        distinct, first, which = np.unique(document_rows.values, return_index=True, return_inverse=True)
        order = np.argsort(first)
        tokens = [_tokens(self.documents, row) for row in distinct[order].tolist()]
        targets = columns.column("targets").chunk(0)
        return PairBatch(
            pair_ids=columns.column("pair_id").to_pylist(),
            document_tokens=Ragged.from_rows(tokens, kind),
            pair_documents=Ragged(np.argsort(order)[which], document_rows.offsets),
            queries=_ragged(columns, "query"),
            targets=Ragged.from_arrow(targets.flatten()).compact(),
            target_offsets=(targets.offsets.to_numpy() - targets.offsets[0].as_py()).astype(np.int64),
        )


def open_pairs(
    folder: str | os.PathLike[str], *, documents: str | os.PathLike[str] | None = None, verify: bool = False
) -> PairSet:
    """Open pairs.

    Args:
        folder: folder written by ``farspan pairs``.
        documents: folder of their documents, if it was moved since the pairs were made.
        verify: compare each shard with its checksum on first use.

    Raises:
        FarspanError: no finished pairs there, or not the documents they were made from.
    """
    return PairSet(os.fspath(folder), None if documents is None else os.fspath(documents), verify)


def add_pair_totals(totals: dict[str, int], batch: pa.RecordBatch) -> None:
    """Add the counts of a batch of ``pairs_schema`` to ``totals``, which has all ``PAIR_TOTALS``."""
    targets = Ragged.from_arrow(batch.column("targets").flatten())
    queries = Ragged.from_arrow(batch.column("query")).lengths
    totals["pairs"] += len(batch)
    totals["targets"] += len(targets)
    totals["query_tokens"] += int(queries.sum())
    totals["target_tokens"] += int(targets.lengths.sum())
    totals["max_query_tokens"] = max(totals["max_query_tokens"], int(queries.max(initial=0)))
    totals["max_target_tokens"] = max(totals["max_target_tokens"], int(targets.lengths.max(initial=0)))
    for split in batch.column("split").to_pylist():
        totals[split] += 1


def _ragged(table: pa.Table, name: str) -> Ragged:
    return Ragged.from_arrow(table.column(name).chunk(0)).compact()


def _tokens(documents: DocumentSet, row: int) -> np.ndarray:
    """View a document's tokens without copying."""
    shard, batch, inside = (int(column[0]) for column in documents.locate(np.array([row])))
    return Ragged.from_arrow(documents.batch(shard, batch).column("tokens"))[inside]
