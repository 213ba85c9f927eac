"""``farspan corpus random``: documents in one global shuffle, concatenated into sequences.

Stage *spill* deals each documents shard out to buckets; stage *pack* reads one bucket back from all spills, sorts it by
(hash, id) and fills sequences. One bucket becomes one shard, so memory is a shard's size, whatever the corpus's.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.concatenation import Packing, concatenate, shuffled
from corpora.documents import documents_schema
from corpora.errors import FarspanError
from corpora.files import Files
from corpora.keyed import id_keys, make_key
from corpora.manifest import Manifest, Receipt, read_manifest
from corpora.ragged import Ragged
from corpora.sequences import corpus_schema
from corpora.shards import map_shard, read_shard, shard_name, write_shard
from pipelines.artefacts import absolute, copy_tokenizer, parent_entry, tokenizer_folder
from pipelines.beam_files import files_for
from pipelines.job import WORK, Job, Report, Stage, Task

ROWS_PER_BATCH = 64
SHARD_TOKENS = 16 << 20


@dataclass(frozen=True)
class RandomCorpus:
    """Options of the job.

    Attributes:
        documents: folder of a ``farspan.documents`` artefact.
        output: folder of the corpus.
        packing: how sequences are filled.
        seed: of the shuffle.
        split: ``train`` or ``held-out`` documents.
        shards: number of shards; 0 gives each up to about 16 million tokens.
        compression: None, ``lz4`` or ``zstd``.
    """

    documents: str
    output: str
    packing: Packing
    seed: int = 0
    split: str = "train"
    shards: int = 0
    compression: str | None = None


def plan(options: RandomCorpus) -> Job:
    """Check the options and lay out the tasks.

    Raises:
        FarspanError: no finished documents there, nothing in the split, or a number out of range.
    """
    documents, output = absolute(options.documents), absolute(options.output)
    if options.shards < 0:
        raise FarspanError(f"--shards {options.shards}: give 0 (by size) or a positive number")
    parent = read_manifest(files_for(documents), documents, "farspan.documents")
    held_out = parent.totals["held_out_tokens"]
    tokens = held_out if options.split == "held-out" else parent.totals["tokens"] - held_out
    if not parent.totals["documents"]:
        raise FarspanError(f"{documents}: holds no document; make the documents from other input")
    if not tokens:
        raise FarspanError(f"{documents}: no {options.split} documents; make them with another --held-out share")
    shards = options.shards or -(-tokens // SHARD_TOKENS)
    config = {
        "builder": "random",
        **asdict(options.packing),
        "split": options.split,
        "shards": shards,
        "compression": options.compression,
    }
    spills = [os.path.join(output, WORK, f"spill-{index:05d}.arrow") for index in range(len(parent.shards))]
    head = Manifest(
        format="farspan.corpus",
        config=config,
        seed=options.seed,
        rows_per_batch=ROWS_PER_BATCH,
        tokenizer=parent.tokenizer,
        parent=parent_entry(output, documents),
    )
    key = make_key(options.seed, "shuffle", {"split": options.split})
    vocab_size = parent.tokenizer["vocab_size"]
    spill = Stage(
        "spill",
        [
            Task(
                f"spill-{index:05d}",
                {"shard": os.path.join(documents, "shards", shard.name), "spill": spills[index]},
                shard.rows,
            )
            for index, shard in enumerate(parent.shards)
        ],
        Spill(key, shards, options.split == "held-out", options.packing, vocab_size),
        "documents",
    )
    pack = Stage(
        "pack",
        [
            Task(
                f"pack-{bucket:05d}",
                {"bucket": bucket, "shard": os.path.join(output, "shards", shard_name(bucket, shards))},
                tokens // shards,
            )
            for bucket in range(shards)
        ],
        Pack(tuple(spills), options.packing, vocab_size, options.compression),
        "tokens",
    )
    return Job(output, head, [spill, pack], partial(copy_tokenizer, tokenizer_folder(documents)), 2 * tokens)


def spill_schema(vocab_size: int) -> pa.Schema:
    """Documents with their 128-bit shuffle key in two columns."""
    return pa.schema(
        [pa.field("key_high", pa.uint64()), pa.field("key_low", pa.uint64())]
        + [documents_schema(vocab_size).field(name) for name in ("document_id", "source", "tokens", "sentence_starts")]
    )


@dataclass(frozen=True)
class Spill:
    """Deal the documents of one shard out to buckets: record batch b of the spill is what bucket b gets of it."""

    key: bytes
    buckets: int
    held_out: bool
    packing: Packing
    vocab_size: int

    def __call__(self, task: Task, report: Report) -> Receipt:
        path = task.payload["shard"]
        schema = spill_schema(self.vocab_size)
        batches = list(read_shard(files_for(path), path))
        counts: dict[str, dict[str, int]] = {}
        with (
            files_for(task.payload["spill"]).create(task.payload["spill"]) as file,
            pa.ipc.new_file(pa.PythonFile(file, "w"), schema) as writer,
        ):
            table = pa.Table.from_batches(batches, documents_schema(self.vocab_size)).combine_chunks()
            batch = table.to_batches()[0] if len(table) else pa.RecordBatch.from_pylist([], table.schema)
            # (documents of the split,) rows of the shard
            rows = np.flatnonzero(batch.column("held_out").to_numpy(zero_copy_only=False) == self.held_out)
            tokens = Ragged.from_arrow(batch.column("tokens"))
            sources = np.asarray(batch.column("source").to_pylist(), object)
            kept = self.packing.keeps(tokens.lengths[rows])
            for source in set(sources[rows]):
                of_source = sources[rows] == source
                read, left_out = int(of_source.sum()), int((of_source & ~kept).sum())
                counts[source] = {"read": read, "filtered": left_out}
            rows = rows[kept]
            ids = batch.column("document_id").take(pa.array(rows))
            keys = id_keys(self.key, ids.to_pylist())
            buckets = bucket_of(keys[:, 0], self.buckets)
            order = np.argsort(buckets, kind="stable")
            ends = np.searchsorted(buckets[order], np.arange(self.buckets), side="right")
            sentences = Ragged.from_arrow(batch.column("sentence_starts"))
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                chosen = order[start:end]
                writer.write_batch(
                    pa.record_batch(
                        [
                            pa.array(keys[chosen, 0]),
                            pa.array(keys[chosen, 1]),
                            ids.take(pa.array(chosen)),
                            pa.array(sources[rows[chosen]], pa.string()),
                            tokens.take(rows[chosen]).to_arrow(schema.field("tokens").type),
                            sentences.take(rows[chosen]).to_arrow(schema.field("sentence_starts").type),
                        ],
                        schema=schema,
                    )
                )
        return Receipt(task.name, counts=counts)


def bucket_of(keys: np.ndarray, buckets: int) -> np.ndarray:
    """``(n,)`` int64: bucket of each ``(n,)`` uint64 key, by its leading 32 bits in equal ranges."""
    return ((keys >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class Pack:
    """Read one bucket back, sort it, concatenate it, write it as one shard."""

    spills: tuple[str, ...]
    packing: Packing
    vocab_size: int
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        path = task.payload["shard"]
        schema = spill_schema(self.vocab_size)
        batches = [_bucket(files_for(spill), spill, task.payload["bucket"]) for spill in self.spills]
        columns = {name: pa.concat_arrays([batch.column(name) for batch in batches]) for name in schema.names}
        keys = np.stack([columns["key_high"].to_numpy(), columns["key_low"].to_numpy()], axis=1)
        order = shuffled(keys)
        _refuse_repeated(keys[order], columns["document_id"], order)
        result = concatenate(
            columns["document_id"].take(pa.array(order)),
            # popped: the unsorted copy goes as soon as the sorted one is there
            Ragged.from_arrow(columns.pop("tokens")).take(order),
            Ragged.from_arrow(columns.pop("sentence_starts")).take(order),
            self.packing,
        )
        rows = result.sequences
        out = corpus_schema(self.vocab_size)
        with write_shard(files_for(path), path, out, ROWS_PER_BATCH, self.compression) as (writer, info):
            writer.write(rows.to_arrow(out))
        counts: dict[str, dict[str, int]] = {}
        sources = np.asarray(columns["source"].to_pylist(), object)[order]
        for source in set(sources):
            used = int(result.used[sources == source].sum())
            counts[source] = {"written": used, "uses": used, "filtered": int((sources == source).sum()) - used}
        totals = {
            "sequences": len(rows),
            "tokens": int(rows.tokens.lengths.sum()),
            "documents": int(result.used.sum()),
            "parts": len(rows.document_starts.values),
            "padding": result.padding,
            "max_tokens": int(rows.tokens.lengths.max(initial=0)),
            "max_documents": int(rows.document_starts.lengths.max(initial=0)),
        }
        return Receipt(task.name, tuple(info), totals, counts)


def _bucket(files: Files, spill: str, bucket: int) -> pa.RecordBatch:
    if "://" in spill:
        with files.open(spill) as file:
            return pa.ipc.open_file(pa.PythonFile(file, "r")).get_batch(bucket)
    return map_shard(spill)[1].get_batch(bucket)


def _refuse_repeated(keys: np.ndarray, document_ids: pa.Array, order: np.ndarray) -> None:
    same = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1)) if len(keys) else np.empty(0, np.int64)
    if len(same):
        name = document_ids[int(order[same[0]])].as_py()
        raise FarspanError(
            f"document id {name!r} occurs twice; make the documents again, from inputs without repetition"
        )
