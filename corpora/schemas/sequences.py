"""``SequenceBatch``, a batch of corpus rows as typed arrays; tables of the columns of artefacts and their schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from corpora.storage.arrow_views import fill_nulls
from corpora.storage.gather import Gatherable, gather
from corpora.storage.ragged import Ragged, concatenate_columns

NO_CLUSTER = -1


def token_dtype(vocab_size: int) -> np.dtype:
    """Return uint16 if every id fits, else int32."""
    return np.dtype(np.uint16 if vocab_size < 65_536 else np.int32)


def token_list(vocab_size: int) -> pa.DataType:
    """Return the Arrow type ``large_list`` of ``token_dtype``."""
    return pa.large_list(pa.from_numpy_dtype(token_dtype(vocab_size)))


class Column(NamedTuple):
    """A column of an artefact."""

    kind: pa.DataType | Callable[[int], pa.DataType]  # or a function of the size of the vocabulary or the vectors
    meaning: str  # for cards
    nullable: bool = False


def make_schema(columns: Mapping[str, Column], size: int) -> pa.Schema:
    """Return the Arrow schema of columns; ``size``: of the vocabulary or the vectors, on which some types depend."""
    kinds = ((name, column.kind, column.nullable) for name, column in columns.items())
    return pa.schema([pa.field(name, kind(size) if callable(kind) else kind, null) for name, kind, null in kinds])


CORPUS_COLUMNS = {
    "sequence_id": Column(pa.binary(16), "16 bytes, unique"),
    "tokens": Column(token_list, "token ids of all parts, without separators and special tokens"),
    "document_starts": Column(pa.list_(pa.int32()), "first token of each part"),
    "document_ids": Column(pa.list_(pa.string()), "document of each part"),
    "document_offsets": Column(pa.list_(pa.int32()), "first token of each part within its document"),
    "document_lengths": Column(pa.list_(pa.int32()), "number of tokens of each whole document"),
    "sentence_starts": Column(pa.list_(pa.int32()), "first token of each sentence and part"),
    "cluster_id": Column(pa.int64(), "cluster of the documents, or null", nullable=True),
}


def corpus_schema(vocab_size: int) -> pa.Schema:
    """Return the columns of ``farspan.corpus`` (docs/formats.md); the vocabulary determines only the token type."""
    return make_schema(CORPUS_COLUMNS, vocab_size)


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """``n`` corpus rows.

    A *part* is the piece of a document in a row; columns of parts have rows of equal lengths.

    Attributes:
        sequence_ids: ``(n, 16)`` uint8.
        tokens: n rows of uint16 or int32, text tokens only.
        document_starts: n rows of int32, start of each part in ``tokens``; the first is 0.
        document_ids: Arrow ``list<string>`` of length n, the document of each part.
        document_offsets: n rows of int32, start of each part in its document, in tokens.
        document_lengths: n rows of int32, tokens of each part's whole document.
        sentence_starts: n rows of int32, starts of sentences and parts in ``tokens``, ascending.
        cluster_ids: ``(n,)`` int64, ``NO_CLUSTER`` for a row without cluster.
    """

    sequence_ids: np.ndarray
    tokens: Ragged
    document_starts: Ragged
    document_ids: pa.Array
    document_offsets: Ragged
    document_lengths: Ragged
    sentence_starts: Ragged
    cluster_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.sequence_ids)

    def sequence_id(self, row: int) -> bytes:
        return self.sequence_ids[row].tobytes()

    def ids(self) -> list[bytes]:
        """Return every row's sequence id, 16 bytes each."""
        return np.ascontiguousarray(self.sequence_ids).view("V16")[:, 0].tolist()

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> SequenceBatch:
        """View a record batch with ``corpus_schema``, without copying."""

        def ragged(name: str) -> Ragged:
            return Ragged.from_arrow(batch.column(name))

        return cls(
            sequence_ids=fixed_bytes(batch.column("sequence_id")),
            tokens=ragged("tokens"),
            document_starts=ragged("document_starts"),
            document_ids=batch.column("document_ids"),
            document_offsets=ragged("document_offsets"),
            document_lengths=ragged("document_lengths"),
            sentence_starts=ragged("sentence_starts"),
            cluster_ids=fill_nulls(batch.column("cluster_id"), NO_CLUSTER),
        )

    def to_arrow(self, schema: pa.Schema) -> pa.RecordBatch:
        """Convert to a record batch with ``schema`` (from ``corpus_schema``)."""
        columns = {
            "sequence_id": bytes_array(self.sequence_ids),
            "document_ids": self.document_ids,
            "cluster_id": pa.array(self.cluster_ids, pa.int64(), mask=self.cluster_ids == NO_CLUSTER),
        }
        return pa.record_batch(
            [
                columns[field.name] if field.name in columns else getattr(self, field.name).to_arrow(field.type)
                for field in schema
            ],
            schema=schema,
        )

    def take(self, rows: np.ndarray | Sequence[int]) -> SequenceBatch:
        """Copy the given rows, in the given order."""
        return gather([Gatherable.of(self)], np.zeros(len(rows), np.int64), np.asarray(rows, np.int64))

    @classmethod
    def concatenate(cls, batches: Sequence[SequenceBatch]) -> SequenceBatch:
        """Concatenate the rows of all ``batches``, at least one, in order."""
        return cls(*(concatenate_columns([getattr(batch, f.name) for batch in batches]) for f in fields(cls)))


def fixed_bytes(array: pa.Array) -> np.ndarray:
    """View a fixed-size binary array without nulls as ``(n, width)`` uint8."""
    width = array.type.byte_width
    data = np.frombuffer(array.buffers()[1], np.uint8) if len(array) else np.empty(0, np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def bytes_array(rows: np.ndarray) -> pa.Array:
    """Convert ``rows``, ``(n, width)`` uint8, to a fixed-size binary array."""
    rows = np.ascontiguousarray(rows, np.uint8)
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, pa.py_buffer(rows)])
