"""Placements of documents in a corpus: written by cluster, read by documents shard.

Record batch s of a placements file holds the placements of documents shard s, so that one spill task reads one batch of
every file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.storage.arrow_views import booleans
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from pipelines.engine.artefacts import Parent
from pipelines.engine.job import Report, Stage, Task, make_sharded_stage, work_paths
from pipelines.shuffle.intermediate import partition, read_batch, write_batches
from pipelines.shuffle.spill import Pieces, join_batches

_SCHEMA = pa.schema(
    [("document_row", pa.int64()), ("document_hash", pa.uint64()), ("key_high", pa.uint64()), ("key_low", pa.uint64())]
    + [(name, pa.int32()) for name in ("position", "offset", "size", "use")]
    + [("cluster", pa.int64())]
)
_KEY = make_key(0, "placement")  # key of the hash by which a row is recognised as the document that was placed


def place_pieces(rows: np.ndarray, ids: Sequence[str], keys: np.ndarray, **columns: np.ndarray) -> pa.RecordBatch:
    """Placements of p pieces of documents, with these ``rows`` of the documents artefact; arrays are ``(p,)``.

    ``keys``, ``(p, 2)`` uint64, are those of the sequences, or of documents that no sequence of their cluster takes;
    ``columns`` the others of the schema. A ``position`` is that in the sequence, -1 if there is none.
    """
    hashed = {"document_row": rows, "document_hash": id_keys(_KEY, ids)[:, 0]}
    values = hashed | {"key_high": keys[:, 0], "key_low": keys[:, 1]} | columns
    return pa.record_batch([pa.array(values[field.name], field.type) for field in _SCHEMA], schema=_SCHEMA)


def write_placements(path: str, placed: Sequence[pa.RecordBatch], starts: np.ndarray) -> None:
    """Write the pieces of documents shard s as batch s; ``starts`` is ``(shards + 1,)``, each shard's first row."""
    pieces = join_batches(placed, _SCHEMA)
    rows = pieces.column("document_row").to_numpy()
    order = np.argsort(rows, kind="stable")
    shards = np.searchsorted(starts, rows[order], side="right") - 1  # (p,), of each piece's document
    parts = partition(shards, len(starts) - 1)
    write_batches(path, _SCHEMA, (pieces.take(pa.array(order[chosen])) for chosen in parts))


def placing_stage(
    output: str, name: str, neighbours: Parent, work: Callable[[Task, Report], Receipt]
) -> tuple[Stage, tuple[str, ...]]:
    """Declare the stage whose tasks each place the documents of one shard of neighbours; also name their files."""
    shards = neighbours.shards
    placements = work_paths(output, name, len(shards), ".arrow")
    rows = [shard.rows for shard in shards]
    return make_sharded_stage(name, work, "documents", rows, shard=shards, placements=placements), placements


@dataclass(frozen=True)
class ReadPlacements:
    """Reads the placements of one documents shard, for ``pipelines.shuffle.spill``."""

    files: tuple[str, ...]  # of ``write_placements``
    starts: tuple[int, ...]  # the first row of each documents shard
    held_out: bool  # if the held-out documents count as read, and not the others

    def __call__(self, index: int, batch: pa.RecordBatch) -> Pieces:
        parts = [read_batch(path, index) for path in self.files]
        table = {name: np.concatenate([part.column(name).to_numpy() for part in parts]) for name in _SCHEMA.names}
        rows = table.pop("document_row") - self.starts[index]
        ids = batch.column("document_id").take(pa.array(rows)).to_pylist()
        if (id_keys(_KEY, ids)[:, 0] != table.pop("document_hash")).any():
            raise FarspanError(
                f"shard {index} of the documents holds other documents than those that were embedded; "
                "give --documents the artefact that the vectors were made from"
            )
        return Pieces(rows, booleans(batch.column("held_out")) == self.held_out, table)


def use_numbers(parts: Ragged, offsets: np.ndarray) -> np.ndarray:
    """Number of earlier uses of each part's document, in the order of rows; ``(p,)`` int32.

    ``parts`` has document numbers, one row per sequence; ``offsets``, ``(p,)``, is 0 where a part begins a use.
    """
    documents = parts.compact().values
    order = np.argsort(documents, kind="stable")
    begun = np.cumsum(offsets[order] == 0)
    first = np.ones(len(order), bool)
    first[1:] = documents[order][1:] != documents[order][:-1]
    before = (begun - (offsets[order] == 0))[first]  # uses of all documents before each one's first part
    uses = np.empty(len(order), np.int32)
    uses[order] = begun - before[np.cumsum(first) - 1] - 1
    return uses
