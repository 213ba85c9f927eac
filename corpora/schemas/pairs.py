"""Pairs: questions, or summaries to be written, about tokenised documents, with targets, references and lengths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.documents import DocumentSet
from corpora.schemas.sequences import Column, make_schema, token_dtype, token_list
from corpora.storage.manifest_file import manifest_sha256, parent_folder
from corpora.storage.ragged import Ragged
from corpora.storage.shard_cache import ShardCache
from corpora.storage.sharded_rows import ShardedRows

SPLITS = ("train", "validation", "test")
PAIR_TOTALS = ("pairs", "targets", "query_tokens", "target_tokens", "max_query_tokens", "max_target_tokens", *SPLITS)
"""Totals of a pairs artefact; those named after a split count its pairs."""


def _token_lists(vocab_size: int) -> pa.DataType:
    return pa.list_(token_list(vocab_size))


PAIR_COLUMNS = {
    "pair_id": Column(pa.string(), "id of the data set, unique"),
    "document_ids": Column(pa.list_(pa.string()), "the documents, in order"),
    "document_rows": Column(pa.list_(pa.int64()), "rows of these documents in the documents artefact"),
    "query": Column(token_list, "token ids of the question; empty if there is none"),
    "options": Column(_token_lists, "token ids of the texts to choose from, or null", nullable=True),
    "targets": Column(_token_lists, "token ids of the texts to train on"),
    "references": Column(pa.list_(pa.string()), "texts to compare predictions with"),
    "split": Column(pa.string(), "`train`, `validation` or `test`"),
    "attributes": Column(pa.string(), "further values of the data, as a JSON object"),
}


def pairs_schema(vocab_size: int) -> pa.Schema:
    """Return the columns of ``farspan.pairs`` (docs/formats.md): one row per question, with all its answers."""
    return make_schema(PAIR_COLUMNS, vocab_size)


@dataclass(frozen=True, slots=True)
class PairBatch:
    """``n`` pairs and the tokens of their documents, each document once.

    Pairs ``example_offsets[i]:example_offsets[i + 1]`` have equal documents and are rendered as one example.
    """

    pair_ids: Sequence[str]  # n ids
    document_tokens: Ragged  # rows of tokens, the distinct documents in the order of their first use
    pair_documents: Ragged  # n rows of int64, the documents of each pair as rows of ``document_tokens``, in order
    queries: Ragged  # n rows of tokens, empty if there is no query
    targets: Ragged  # rows of tokens, the targets of all pairs one after the other
    target_offsets: np.ndarray  # (n + 1,) int64; pair i has ``targets[target_offsets[i]:target_offsets[i + 1]]``
    example_offsets: np.ndarray | None = None  # (examples + 1,) int64; None if each pair is an example

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


class PairSet(ShardedRows):
    """The pairs 0 .. len-1 of a ``farspan.pairs`` folder, with the ``documents`` that they are about."""

    def __init__(
        self, folder: str, documents: str | None = None, verify: bool = False, cache: ShardCache | None = None
    ) -> None:
        super().__init__(folder, "farspan.pairs", verify, cache)
        self.schema = pairs_schema(self.manifest.tokenizer["vocab_size"])
        place = documents or parent_folder(folder, "--documents")
        self.documents = DocumentSet(place, verify=verify, cache=cache)
        if manifest_sha256(place) != (self.manifest.parent or {})["manifest_sha256"]:
            raise FarspanError(
                f"{folder}: its pairs are about other documents than those in {place}; give the documents that they "
                "were made from, or run `farspan pairs` again"
            )

    def __getstate__(self) -> dict[str, Any]:
        cache = self.cache or self.documents.cache
        return {"folder": self.folder, "documents": self.documents.folder, "verify": self.verify, "cache": cache}

    @property
    def splits(self) -> np.ndarray:
        """Split of each pair, ``(len,)`` str."""
        return self._overview[0]

    @property
    def target_counts(self) -> np.ndarray:
        """Number of targets of each pair, ``(len,)`` int64."""
        return self._overview[1]

    @property
    def document_rows(self) -> Ragged:
        """Documents of each pair, as rows of ``documents``; int64."""
        return self._overview[2]

    @cached_property
    def _overview(self) -> tuple[np.ndarray, np.ndarray, Ragged]:
        """Columns that are kept in memory, read in one pass, so that remote shards are fetched once."""
        splits, counts, documents = [np.empty(0, str)], [np.empty(0, np.int64)], [_NO_ROWS]
        for batch in self.batches():
            splits.append(batch.column("split").to_numpy(zero_copy_only=False).astype(str))
            counts.append(batch.column("targets").value_lengths().to_numpy().astype(np.int64))
            rows = _numbers(batch.column("document_rows"))
            documents.append(Ragged(rows.values.copy(), rows.offsets))  # a view would keep the shard
        return np.concatenate(splits), np.concatenate(counts), Ragged.concatenate(documents)

    def rows_of(self, split: str) -> np.ndarray:
        """Return the rows of ``split`` in stored order, ``(n,)`` int64."""
        rows = np.flatnonzero(self.splits == split)
        if not len(rows):
            known = ", ".join(np.unique(self.splits).tolist()) or "none"
            raise FarspanError(f"{self.folder}: no pair is in split {split!r}; its splits: {known}")
        return rows

    def values(self, name: str, rows: np.ndarray) -> list[Any]:
        """Return a column of ascending rows ``(n,)``, read shard by shard, so that a cache must hold one at a time."""
        by_shard = np.split(rows, np.searchsorted(rows, self.starts[1:-1]))
        return [
            value
            for shard_rows in by_shard
            if len(shard_rows)
            for value in self.table(shard_rows).column(name).to_pylist()
        ]

    def take(self, rows: Sequence[int] | np.ndarray) -> PairBatch:
        """Return the given rows, at least one, in the given order, with the tokens of their documents."""
        columns = self.table(rows).combine_chunks()
        kind = token_dtype(self.manifest.tokenizer["vocab_size"])
        document_rows = _ragged(columns, "document_rows")
        # the distinct documents in the order of their first use
        distinct, first, which = np.unique(document_rows.values, return_index=True, return_inverse=True)
        order = np.argsort(first)
        texts = [_tokens(self.documents, row) for row in distinct.tolist()]  # shard after shard
        tokens = [texts[place] for place in order.tolist()]
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


_NO_ROWS = Ragged(np.empty(0, np.int64), np.zeros(1, np.int64))


def _numbers(column: pa.Array) -> Ragged:
    return Ragged.from_arrow(column).compact()


def _ragged(table: pa.Table, name: str) -> Ragged:
    return _numbers(table.column(name).chunk(0))


def _tokens(documents: DocumentSet, row: int) -> np.ndarray:
    """View a document's tokens; copy them from a remote shard, as a view would keep the shard in the cache."""
    shard, batch, inside = documents.locate_row(row)
    tokens = Ragged.from_arrow(documents.batch(shard, batch).column("tokens"))[inside]
    return tokens.copy() if documents.cache else tokens


@dataclass(frozen=True)
class PairLengths:
    """Lengths of the n pairs of an artefact and of the m documents that they are about, in tokens, as int64."""

    queries: np.ndarray  # (n,)
    document_rows: Ragged  # n rows, the documents of each pair
    targets: np.ndarray  # targets of all pairs one after the other
    target_starts: np.ndarray  # (n,) index of each pair's first target in ``targets``
    longest_targets: np.ndarray  # (n,) 0 for a pair without targets
    documents: np.ndarray  # (m,)

    @classmethod
    def of(cls, pairs: PairSet) -> PairLengths:
        """Read the lengths of all pairs and documents.

        The artefacts are opened again without comparing checksums, because little of their files is read.
        """
        rows = PairSet(pairs.folder, pairs.documents.folder)
        batches, counts = list(rows.batches()), rows.target_counts
        targets = _join(batch.column("targets").flatten().value_lengths() for batch in batches)
        longest = np.zeros(len(counts), np.int64)
        np.maximum.at(longest, np.repeat(np.arange(len(counts)), counts), targets)
        return cls(
            queries=_join(batch.column("query").value_lengths() for batch in batches),
            document_rows=rows.document_rows,
            targets=targets,
            target_starts=np.cumsum(counts) - counts,
            longest_targets=longest,
            documents=_join(batch.column("tokens").value_lengths() for batch in rows.documents.batches()),
        )

    def documents_of(self, pairs: np.ndarray) -> Ragged:
        """Return the lengths of the documents of each of the ``(k,)`` pairs; k rows."""
        rows = self.document_rows.take(pairs)
        return Ragged(self.documents[rows.values], rows.offsets)

    def targets_of(self, pairs: np.ndarray, numbers: np.ndarray | None) -> np.ndarray:
        """Return the length of target ``numbers[i]``, or of the longest, of each of the ``(k,)`` pairs, ``(k,)``."""
        return self.longest_targets[pairs] if numbers is None else self.targets[self.target_starts[pairs] + numbers]


def _join(parts: Iterable[pa.Array]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int64), *(part.to_numpy() for part in parts)]).astype(np.int64)
