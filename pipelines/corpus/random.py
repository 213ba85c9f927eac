"""``farspan corpus random``: shuffle all documents and concatenate them into sequences.

Stage *spill* partitions each documents shard into buckets; stage *pack* reads one bucket from all spill files, sorts it
by keyed hash and fills sequences. One bucket becomes one shard, so a worker needs memory for one shard.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.options import record_options
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.schemas.corpus import DocumentUse
from corpora.storage.arrow_views import booleans
from corpora.storage.manifest import Receipt
from corpora.storage.ragged import Ragged
from pipelines.corpus.options import RandomCorpus
from pipelines.engine.artefacts import absolute, some_tokens
from pipelines.engine.derived import Parent
from pipelines.engine.job import Job, Report, Task
from pipelines.shuffle.corpus_shard import corpus_job, pack_stage, shard_count, write_corpus_shard
from pipelines.shuffle.spill import Pieces, bucket_of, read_bucket, refuse_repeated, spill_stages


def plan(options: RandomCorpus) -> Job:
    """Check the options and declare the tasks."""
    output, documents = absolute(options.output), Parent.read(options.documents, "farspan.documents")
    tokens = some_tokens(documents.folder, documents.manifest, options.split)
    shards = shard_count(options.shards, tokens)
    config = {"builder": "random", **record_options(options, shards=shards)}
    key = make_key(options.seed, "shuffle", {"split": options.split})
    place = Shuffle(key, shards, options.split == "held-out", options.packing)
    stages, spills = spill_stages(output, documents, place, shards, options.fan_in)
    work = Pack(spills, options.packing, documents.vocab_size, options.compression)
    stages.append(pack_stage(output, shards, tokens, work))
    use = _document_use(options.packing)
    return corpus_job(output, documents, stages, config=config, use=use, seed=options.seed, work_bytes=2 * tokens)


def _document_use(packing: Packing) -> DocumentUse:
    uses_all = packing.split_documents and not packing.drop_ragged_tail and packing.min_document_tokens <= 1
    return DocumentUse(
        truncated=packing.drop_ragged_tail, left_out=None if uses_all else "too short, too long, or in a dropped tail"
    )


@dataclass(frozen=True)
class Shuffle:
    """Place every document of the split by its keyed hash."""

    key: bytes
    buckets: int
    held_out: bool
    packing: Packing

    def __call__(self, index: int, batch: pa.RecordBatch) -> Pieces:
        read = booleans(batch.column("held_out")) == self.held_out
        kept = read & self.packing.keeps(Ragged.from_arrow(batch.column("tokens")).lengths)
        rows = np.flatnonzero(kept)
        keys = id_keys(self.key, batch.column("document_id").take(pa.array(rows)).to_pylist())
        return Pieces(rows, bucket_of(keys[:, 0], self.buckets), keys, np.zeros(len(rows), np.int32), read, kept)


@dataclass(frozen=True)
class Pack:
    """Read one bucket, concatenate its documents, write one shard."""

    spills: tuple[str, ...]
    packing: Packing
    vocab_size: int
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        bucket = read_bucket(self.spills, task.payload["bucket"])
        refuse_repeated(bucket)
        packed = concatenate(bucket.document_ids, bucket.tokens, bucket.sentence_starts, self.packing)
        return write_corpus_shard(
            task, packed.sequences, bucket, packed.documents, self.packing, self.vocab_size, self.compression
        )
