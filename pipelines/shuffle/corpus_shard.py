"""Parts of a job that all builders of corpora share: number of shards, pack stage, one shard, declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from corpora.packing.options import Packing
from corpora.schemas.corpus import DocumentUse
from corpora.schemas.sequences import SequenceBatch, corpus_schema
from corpora.storage.manifest import Receipt
from corpora.storage.shards import write_shard
from pipelines.engine.artefacts import Parent, declare_derived_job
from pipelines.engine.job import Job, Report, Stage, Task, make_sharded_stage, shard_paths
from pipelines.shuffle.spill import Bucket

ROWS_PER_BATCH = 64
SHARD_TOKENS = 16 << 20


def shard_count(requested: int, tokens: int) -> int:
    """Number of shards of a corpus of about ``tokens`` tokens: ``requested``, or for 0 one per ``SHARD_TOKENS``."""
    return requested or max(1, -(-tokens // SHARD_TOKENS))


def pack_stage(output: str, shards: int, tokens: int, work: Callable[[Task, Report], Receipt]) -> Stage:
    """Declare the last stage: one task per bucket, which becomes the shard of the same number."""
    payloads = [
        ({"bucket": index, "shard": path}, tokens // shards) for index, path in enumerate(shard_paths(output, shards))
    ]
    return make_sharded_stage("pack", payloads, work, "tokens")


def corpus_job(
    output: str,
    documents: Parent,
    stages: Sequence[Stage],
    *,
    config: Mapping[str, Any],
    use: DocumentUse,
    seed: int,
    work_bytes: int,
    neighbours: Parent | None = None,
) -> Job:
    """Declare the job that makes the corpus ``output`` from documents, and from ``neighbours`` if there are any."""
    return declare_derived_job(
        output,
        documents,
        stages,
        format="farspan.corpus",
        config={**config, "document_use": asdict(use)},
        seed=seed,
        rows_per_batch=ROWS_PER_BATCH,
        work_bytes=work_bytes,
        others={"neighbours": neighbours.folder} if neighbours else {},
    )


def write_corpus_shard(
    task: Task,
    rows: SequenceBatch,
    bucket: Bucket,
    pieces: np.ndarray,
    packing: Packing,
    vocab_size: int,
    compression: str | None,
) -> Receipt:
    """Write ``rows`` to the task's ``shard`` and return the receipt.

    ``pieces``, ``(parts,)``, is the index in the bucket of the piece that each part of the rows comes from.
    """
    path = task.payload["shard"]
    schema = corpus_schema(vocab_size)
    with write_shard(path, schema, ROWS_PER_BATCH, compression) as (writer, info):
        writer.write(rows.to_arrow(schema))
    lengths, parts = rows.tokens.lengths, rows.document_starts.lengths
    used = np.zeros(len(bucket), bool)
    used[pieces] = True
    # a document with many pieces counts once
    first = (bucket.offsets == 0) & (bucket.uses == 0)
    offsets = rows.document_offsets.compact().values  # (parts,); 0 once for each use of a document
    flat = rows.document_starts.compact().values + np.repeat(rows.tokens.offsets[:-1] - rows.tokens.offsets[0], parts)
    sizes = np.diff(np.append(flat, lengths.sum()))  # (parts,)
    counts = {}
    for source in sorted(set(bucket.sources)):
        mask = bucket.sources == source
        counts[source] = {
            "written": int((mask & first & used).sum()),
            "filtered": int((mask & first & ~used).sum()),
            "uses": int((mask[pieces] & (offsets == 0)).sum()),
            "tokens": int(sizes[mask[pieces]].sum()),
        }
    totals = {
        "sequences": len(rows),
        "tokens": int(lengths.sum()),
        "documents": int((first & used).sum()),
        "parts": int(parts.sum()),
        "padding": packing.padding(rows),
        "max_tokens": int(lengths.max(initial=0)),
        "max_documents": int(parts.max(initial=0)),
    }
    return Receipt(task.name, tuple(info), totals, counts)
