"""Number of shards, declaration of the job and last stage of every kind of corpus."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from corpora.packing.options import Packing
from corpora.schemas.corpus import DocumentUse
from corpora.schemas.sequences import SequenceBatch, corpus_schema
from corpora.storage.manifest import Receipt
from corpora.storage.shards import write_shard
from pipelines.engine.artefacts import Parent, absolute, declare_derived_job
from pipelines.engine.job import Job, Report, Stage, Task, count_by_source, make_sharded_stage, shard_paths
from pipelines.shuffle.spill import Bucket, Placement, read_bucket, spill_stages

ROWS_PER_BATCH = 64
SHARD_TOKENS = 16 << 20


def shard_count(requested: int, tokens: int) -> int:
    """Number of shards of a corpus of about ``tokens`` tokens: ``requested``, or for 0 one per ``SHARD_TOKENS``."""
    return requested or max(1, -(-tokens // SHARD_TOKENS))


class Packed(NamedTuple):
    """Rows made of a bucket."""

    rows: SequenceBatch
    pieces: np.ndarray  # (parts,), index in the bucket of the piece that each part of the rows comes from
    totals: Mapping[str, int] = {}  # beside those of every corpus


@dataclass(frozen=True)
class PackBucket:
    """Reads a bucket, has ``arrange`` make rows of it, and writes them as the shard of the same number."""

    spills: tuple[str, ...]
    arrange: Callable[[Bucket], Packed]
    packing: Packing
    vocab_size: int
    compression: str | None

    def __call__(self, task: Task, report: Report) -> Receipt:
        bucket = read_bucket(self.spills, task.payload["index"])
        packed = self.arrange(bucket)
        schema = corpus_schema(self.vocab_size)
        with write_shard(task.payload["shard"], schema, ROWS_PER_BATCH, self.compression) as (writer, info):
            writer.write(packed.rows.to_arrow(schema))
        totals, counts = count_rows(packed, bucket, self.packing)
        return Receipt(task.name, tuple(info), totals, counts)


def corpus_job(
    options: Any,
    documents: Parent,
    place: Placement,
    arrange: Callable[[Bucket], Packed],
    *,
    packing: Packing,
    shards: int,
    tokens: int,
    config: Mapping[str, Any],
    use: DocumentUse,
    tokens_read: int | None = None,
    before: Sequence[Stage] = (),
    neighbours: Parent | None = None,
) -> Job:
    """Declare the job that makes a corpus of about ``tokens`` tokens: stages ``before``, spill, merge and pack.

    ``options`` are those of its kind, all of which have ``output``, ``seed``, ``fan_in`` and ``compression``;
    ``tokens_read`` decides the number of workers (default: ``tokens``).
    """
    output = absolute(options.output)
    spilling, spills = spill_stages(output, documents, place, shards, options.fan_in)
    pack = PackBucket(spills, arrange, packing, documents.vocab_size, options.compression)
    sizes = [tokens // shards] * shards
    packing_stage = make_sharded_stage("pack", pack, "tokens", sizes, shard=shard_paths(output, shards))
    return declare_derived_job(
        output,
        documents,
        [*before, *spilling, packing_stage],
        format="farspan.corpus",
        config={**config, "document_use": asdict(use)},
        seed=options.seed,
        rows_per_batch=ROWS_PER_BATCH,
        work_bytes=2 * (tokens_read or tokens),
        others={"neighbours": neighbours.folder} if neighbours else {},
    )


def count_rows(packed: Packed, bucket: Bucket, packing: Packing) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Return the totals of a shard's rows, and the counts of each source."""
    rows, pieces = packed.rows, packed.pieces
    lengths, parts = rows.tokens.lengths, rows.document_starts.lengths
    used = np.zeros(len(bucket), bool)
    used[pieces] = True
    # a document with many pieces counts once
    first = (bucket.offsets == 0) & (bucket.uses == 0)
    offsets = rows.document_offsets.compact().values  # (parts,); 0 once for each use of a document
    flat = rows.document_starts.compact().values + np.repeat(rows.tokens.offsets[:-1] - rows.tokens.offsets[0], parts)
    sizes = np.diff(np.append(flat, lengths.sum()))  # (parts,)
    counts = count_by_source(
        bucket.sources,
        written=first & used,
        filtered=first & ~used,
        uses=np.bincount(pieces, offsets == 0, len(bucket)),
        tokens=np.bincount(pieces, sizes, len(bucket)),
    )
    totals = {
        "sequences": len(rows),
        "tokens": int(lengths.sum()),
        "documents": int((first & used).sum()),
        "parts": int(parts.sum()),
        "padding": packing.padding(rows),
        "max_tokens": int(lengths.max(initial=0)),
        "max_documents": int(parts.max(initial=0)),
    }
    return {**totals, **packed.totals}, counts
