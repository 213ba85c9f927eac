"""``farspan corpus random``: shuffle all documents and pack them into sequences.

Stage *spill* partitions each documents shard into buckets; stage *pack* reads one bucket from all spill files, sorts it
by keyed hash and fills sequences. One bucket becomes one shard, so a worker needs memory for one shard.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from corpora.keyed import make_key
from corpora.options import record_options
from corpora.packing.assemble import assemble_cuts
from corpora.packing.concatenate import concatenate
from corpora.packing.options import Packing
from corpora.packing.windows import Taken, Windows, arrange
from corpora.schemas.corpus import DocumentUse
from corpora.storage.arrow_views import booleans
from corpora.storage.ragged import Ragged
from pipelines.corpus.options import RandomCorpus
from pipelines.engine.artefacts import Parent, require_tokens
from pipelines.engine.job import Job
from pipelines.shuffle.corpus_shard import Packed, corpus_job, shard_count
from pipelines.shuffle.spill import Bucket, Pieces, place_by_id, refuse_repeated


def plan(options: RandomCorpus) -> Job:
    """Check the options and declare the tasks."""
    documents = Parent.read(options.documents, "farspan.documents")
    tokens = require_tokens(documents.folder, documents.manifest, options.split)
    shards = shard_count(options.shards, tokens)
    key, row_key = (make_key(options.seed, purpose, {"split": options.split}) for purpose in ("shuffle", "rows"))
    return corpus_job(
        options,
        documents,
        partial(_shuffle, key, options.split == "held-out", options.packing),
        partial(_pack, options.packing, row_key),
        packing=options.packing,
        shards=shards,
        tokens=tokens,
        config={"builder": "random", **record_options(options, shards=shards)},
        use=_document_use(options.packing),
    )


def _document_use(packing: Packing) -> DocumentUse:
    cuts = packing.packing == "powers-of-two" and packing.power_sizes[-1] > 1
    uses_all = packing.keeps(np.array([1, 2**31 - 1])).all() and not packing.drop_ragged_tail
    return DocumentUse(
        truncated=packing.drop_ragged_tail or cuts,
        left_out=None if uses_all else "too short, too long, or in a dropped tail",
    )


def _shuffle(key: bytes, held_out: bool, packing: Packing, index: int, batch: pa.RecordBatch) -> Pieces:
    """Place every document of the split by its keyed hash."""
    read = booleans(batch.column("held_out")) == held_out
    return place_by_id(key, batch, read, read & packing.keeps(Ragged.from_arrow(batch.column("tokens")).lengths))


def _pack(packing: Packing, row_key: bytes, bucket: Bucket) -> Packed:
    """Pack the documents of a bucket; ``row_key`` orders rows that packing has sorted by length."""
    refuse_repeated(bucket)
    if packing.packing in ("concatenate", "whole-documents"):
        packed = concatenate(bucket.document_ids, bucket.tokens, bucket.sentence_starts, packing)
        return Packed(packed.sequences, packed.documents)
    sources = np.zeros(len(bucket), np.int64)  # rows mix all sources
    cuts = arrange(Taken.all(bucket.lengths), sources, packing, Windows.of(packing))
    cuts = cuts.shuffle(row_key, bucket.document_ids.to_pylist())
    rows = assemble_cuts(bucket.document_ids, bucket.tokens, bucket.sentence_starts, cuts)
    if packing.packing != "powers-of-two":
        return Packed(rows, cuts.documents)
    lost = int(bucket.lengths.sum()) - int(rows.tokens.lengths.sum())
    return Packed(rows, cuts.documents, {"left_out_tokens": lost})
