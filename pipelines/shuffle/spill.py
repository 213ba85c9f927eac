"""Partition documents into buckets on disk, without a shuffle in memory: spill, merge, read.

Stage *spill* partitions the pieces of a documents shard and writes one spill file, whose record batch b holds the
pieces of bucket b. If there are many spill files, stage *merge* joins groups of them, so that a bucket is read from a
few files: n spill files and b buckets need ``n * b / FAN_IN`` small reads instead of ``n * b``, which matters in object
stores. ``read_bucket`` gathers one bucket, sorted by key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.packing.assemble import cut_sentences
from corpora.schemas.documents import documents_schema
from corpora.schemas.sequences import NO_CLUSTER
from corpora.storage.arrow_views import numbers
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from corpora.storage.shards import StoredShard, map_shard
from pipelines.engine.artefacts import Parent
from pipelines.engine.job import Report, Stage, Task, count_by_source, make_sharded_stage, work_paths
from pipelines.options import FAN_IN
from pipelines.shuffle.intermediate import first_of_key, partition, read_batch, read_checked_batch, write_batches


@dataclass(frozen=True)
class Pieces:
    """Placements of m pieces of a block's n documents; documents that are read and have no piece count as filtered.

    ``columns``, ``(m,)`` each, are those of a spill file: ``key_high``, which decides the bucket, ``key_low`` and
    ``position``, by all of which a bucket is sorted; ``offset`` and ``size``, unless pieces are whole documents;
    ``use``, the number of earlier uses of the document, unless it is 0; and ``cluster``, if there are some.
    """

    rows: np.ndarray  # (m,) int64, document in the block
    read: np.ndarray  # (n,) bool, documents that count as read; the others belong to another split
    columns: Mapping[str, np.ndarray]


# (number of a documents shard, its rows as one batch) -> their placements
Placement = Callable[[int, pa.RecordBatch], Pieces]


@dataclass(frozen=True)
class Bucket:
    """p pieces, sorted; every array is ``(p,)`` unless stated, every ``Ragged`` has p rows."""

    keys: np.ndarray  # (p, 2) uint64
    positions: np.ndarray  # int32
    offsets: np.ndarray  # int32
    lengths: np.ndarray  # int32, of the whole documents
    uses: np.ndarray  # int32
    clusters: np.ndarray  # int64
    document_ids: pa.Array
    sources: np.ndarray  # strings
    tokens: Ragged  # uint16 or int32
    sentence_starts: Ragged  # int32, in the piece

    def __len__(self) -> int:
        return len(self.positions)


def spill_schema(vocab_size: int) -> pa.Schema:
    """Schema of a spill file: pieces of documents and their placements."""
    documents = documents_schema(vocab_size)
    return pa.schema(
        [("key_high", pa.uint64()), ("key_low", pa.uint64()), ("position", pa.int32())]
        + [("offset", pa.int32()), ("length", pa.int32()), ("use", pa.int32()), ("cluster", pa.int64())]
        + [documents.field(name) for name in ("document_id", "source", "tokens", "sentence_starts")]
    )


def spill_stages(
    output: str, documents: Parent, place: Placement, buckets: int, fan_in: int = FAN_IN
) -> tuple[list[Stage], tuple[str, ...]]:
    """Declare the stages that partition documents into buckets; also name the files from which a bucket is read."""
    shards, vocab_size = documents.shards, documents.vocab_size
    spills = work_paths(output, "spill", len(shards), ".arrow")
    rows = [shard.rows for shard in shards]
    work = partial(_spill, place, buckets, vocab_size)
    spilling = make_sharded_stage("spill", work, "documents", rows, shard=shards, spill=spills)
    if len(spills) <= fan_in:
        return [spilling], spills
    groups = [spills[first : first + fan_in] for first in range(0, len(spills), fan_in)]
    merged = work_paths(output, "merge", len(groups), ".arrow")
    merge = partial(merge_spills, buckets, vocab_size)
    merging = make_sharded_stage("merge", merge, "files", list(map(len, groups)), spills=groups, merged=merged)
    return [spilling, merging], merged


def _spill(place: Placement, buckets: int, vocab_size: int, task: Task, report: Report) -> Receipt:
    """Partition the documents of one shard: record batch b of the spill file holds the pieces of bucket b."""
    shard: StoredShard = task.payload["shard"]
    schema = documents_schema(vocab_size)
    batch = join_batches([batch.select(schema.names) for batch in shard.batches()], schema)  # corpora have no titles
    pieces = place(task.payload["index"], batch)
    parts = partition(bucket_of(pieces.columns["key_high"], buckets), buckets)
    cut = (_cut(batch, pieces, chosen, vocab_size) for chosen in parts)
    write_batches(task.payload["spill"], spill_schema(vocab_size), cut)
    sources, read = np.asarray(batch.column("source").to_pylist(), object), pieces.read
    filtered = np.ones(len(batch), bool)
    filtered[pieces.rows] = False
    return Receipt(task.name, counts=count_by_source(sources[read], read=read[read], filtered=filtered[read]))


def join_batches(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Join record batches to one; an empty one if there are none."""
    return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)


def _cut(batch: pa.RecordBatch, pieces: Pieces, chosen: np.ndarray, vocab_size: int) -> pa.RecordBatch:
    """The ``(c,)`` chosen pieces as rows of a spill file."""
    schema = spill_schema(vocab_size)
    rows = pieces.rows[chosen]
    tokens, sentences = (Ragged.from_arrow(batch.column(name)) for name in ("tokens", "sentence_starts"))
    lengths, zeros = tokens.lengths[rows], np.zeros(len(rows), np.int32)
    whole = {"offset": zeros, "size": lengths, "length": lengths, "use": zeros, "cluster": zeros + NO_CLUSTER}
    columns = whole | {name: values[chosen] for name, values in pieces.columns.items()}
    offsets, sizes = columns["offset"], columns.pop("size")
    arrays = {name: pa.array(values, schema.field(name).type) for name, values in columns.items()}
    arrays |= {name: batch.column(name).take(pa.array(rows)) for name in ("document_id", "source")}
    arrays["tokens"] = tokens.cut(rows, offsets, sizes).to_arrow(schema.field("tokens").type)
    arrays["sentence_starts"] = cut_sentences(sentences, rows, offsets, sizes).to_arrow(pa.list_(pa.int32()))
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def merge_spills(buckets: int, vocab_size: int, task: Task, report: Report) -> Receipt:
    """Join spill files bucket by bucket; remote ones are copied to local disk first."""
    merged = task.payload["merged"]
    schema = spill_schema(vocab_size)
    readers: list[tuple[pa.RecordBatchFileReader, str]] = []
    for index, spill in enumerate(task.payload["spills"]):
        readers.append((map_shard(spill)[1], spill))
        report(index)
    parts = ([read_checked_batch(reader, bucket, spill) for reader, spill in readers] for bucket in range(buckets))
    write_batches(merged, schema, (join_batches(batches, schema) for batches in parts))
    return Receipt(task.name)


def read_bucket(spills: Sequence[str], bucket: int) -> Bucket:
    """Read one bucket from all spill files, sorted by key and position."""
    batches = [read_batch(spill, bucket) for spill in spills]
    columns = {name: pa.concat_arrays([b.column(name) for b in batches]) for name in batches[0].schema.names}
    del batches
    sorting = {
        name: numbers(columns.pop(name))
        for name in ("key_high", "key_low", "position", "offset", "length", "use", "cluster")
    }
    order = np.lexsort((sorting["position"], sorting["key_low"], sorting["key_high"]))
    return Bucket(
        keys=np.column_stack([sorting["key_high"], sorting["key_low"]])[order],
        **{f"{name}s": sorting[name][order] for name in ("position", "offset", "length", "use", "cluster")},
        document_ids=columns["document_id"].take(pa.array(order)),
        sources=np.asarray(columns["source"].to_pylist(), object)[order],
        # popped, so that the unsorted copy is freed early
        tokens=Ragged.from_arrow(columns.pop("tokens")).take(order),
        sentence_starts=Ragged.from_arrow(columns.pop("sentence_starts")).take(order),
    )


def bucket_of(keys: np.ndarray, buckets: int) -> np.ndarray:
    """Bucket of each ``(n,)`` uint64 key, by equal ranges of its leading 32 bits; ``(n,)`` int64."""
    return ((keys >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def place_by_id(key: bytes, batch: pa.RecordBatch, read: np.ndarray, kept: np.ndarray) -> Pieces:
    """Place the ``kept`` documents of a batch, whole, by the keyed hashes of their ids."""
    rows = np.flatnonzero(kept)
    high, low = id_keys(key, batch.column("document_id").take(pa.array(rows)).to_pylist()).T
    return Pieces(rows, read, {"key_high": high, "key_low": low, "position": np.zeros(len(rows), np.int32)})


def refuse_repeated(bucket: Bucket) -> None:
    """Refuse a bucket in which two whole documents have the same id, and so the same key."""
    again = ~first_of_key(bucket.keys)
    if again.any():
        raise FarspanError(
            f"document id {bucket.document_ids[int(again.argmax())].as_py()!r} occurs twice; make the documents again, "
            "from inputs without repetition"
        )
