"""``farspan corpus random``: shuffle all documents and pack them into sequences.

Stage *spill* partitions each documents shard into buckets; stage *pack* reads one bucket from all spill files, sorts it
by keyed hash and fills sequences. One bucket becomes one shard, so a worker needs memory for one shard.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.options import record_options
from corpora.packing.assemble import assemble_cuts
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.packing.windows import Taken, Windows, arrange
from corpora.schemas.corpus import DocumentUse
from corpora.storage.arrow_views import booleans
from corpora.storage.ragged import Ragged
from pipelines.corpus.options import RandomCorpus
from pipelines.engine.artefacts import Parent, some_tokens
from pipelines.engine.job import Job
from pipelines.shuffle.corpus_shard import Packed, corpus_job, shard_count
from pipelines.shuffle.spill import Bucket, Pieces, bucket_of, refuse_repeated


def plan(options: RandomCorpus) -> Job:
    """Check the options and declare the tasks."""
    documents = Parent.read(options.documents, "farspan.documents")
    tokens = some_tokens(documents.folder, documents.manifest, options.split)
    shards = shard_count(options.shards, tokens)
    key, row_key = (make_key(options.seed, purpose, {"split": options.split}) for purpose in ("shuffle", "rows"))
    return corpus_job(
        options,
        documents,
        Shuffle(key, shards, options.split == "held-out", options.packing),
        Pack(options.packing, row_key),
        packing=options.packing,
        shards=shards,
        tokens=tokens,
        config={"builder": "random", **record_options(options, shards=shards)},
        use=_document_use(options.packing),
        work_bytes=2 * tokens,
    )


def _document_use(packing: Packing) -> DocumentUse:
    cuts = packing.packing == "powers-of-two" and packing.power_sizes[-1] > 1
    uses_all = packing.keeps(np.array([1, 2**31 - 1])).all() and not packing.drop_ragged_tail
    return DocumentUse(
        truncated=packing.drop_ragged_tail or cuts,
        left_out=None if uses_all else "too short, too long, or in a dropped tail",
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
    """Packs the documents of a bucket."""

    packing: Packing
    row_key: bytes  # of the order of rows, where packing has sorted them by length

    def __call__(self, bucket: Bucket) -> Packed:
        refuse_repeated(bucket)
        if self.packing.packing in ("concatenate", "whole-documents"):
            packed = concatenate(bucket.document_ids, bucket.tokens, bucket.sentence_starts, self.packing)
            return Packed(packed.sequences, packed.documents)
        sources = np.zeros(len(bucket), np.int64)  # rows mix all sources
        cuts = arrange(Taken.all(bucket.lengths), sources, self.packing, Windows.of(self.packing))
        cuts = cuts.shuffle(self.row_key, bucket.document_ids.to_pylist())
        rows = assemble_cuts(bucket.document_ids, bucket.tokens, bucket.sentence_starts, cuts)
        if self.packing.packing != "powers-of-two":
            return Packed(rows, cuts.documents)
        lost = int(bucket.lengths.sum()) - int(rows.tokens.lengths.sum())
        return Packed(rows, cuts.documents, {"left_out_tokens": lost})
