"""One shard of a corpus from the rows that a builder made of a bucket, and what its receipt says."""

from __future__ import annotations

import numpy as np

from corpora.manifest import Receipt
from corpora.sequences import SequenceBatch, corpus_schema
from corpora.shards import write_shard
from pipelines.beam_files import files_for
from pipelines.job import Task
from pipelines.spill import Bucket

ROWS_PER_BATCH = 64
SHARD_TOKENS = 16 << 20


def write_corpus_shard(
    task: Task,
    rows: SequenceBatch,
    bucket: Bucket,
    pieces: np.ndarray,
    padding: int,
    vocab_size: int,
    compression: str | None,
) -> Receipt:
    """Write ``rows`` to the task's ``shard``.

    Args:
        pieces: ``(parts,)`` the piece of the bucket that each part of the rows is, or is cut from.
        padding: positions that stay empty in all rows together.
    """
    path = task.payload["shard"]
    schema = corpus_schema(vocab_size)
    with write_shard(files_for(path), path, schema, ROWS_PER_BATCH, compression) as (writer, info):
        writer.write(rows.to_arrow(schema))
    lengths, parts = rows.tokens.lengths, rows.document_starts.lengths
    used = np.zeros(len(bucket), bool)
    used[pieces] = True
    # a document with many pieces is read, and written or left out, once
    first = (bucket.offsets == 0) & (bucket.uses == 0)
    offsets = rows.document_offsets.compact().values  # (parts,) a use of a document has one part that begins it
    flat = rows.document_starts.compact().values + np.repeat(rows.tokens.offsets[:-1] - rows.tokens.offsets[0], parts)
    sizes = np.diff(np.append(flat, lengths.sum()))  # (parts,)
    counts = {}
    for source in sorted(set(bucket.sources)):
        own = bucket.sources == source
        counts[source] = {
            "written": int((own & first & used).sum()),
            "filtered": int((own & first & ~used).sum()),
            "uses": int((own[pieces] & (offsets == 0)).sum()),
            "tokens": int(sizes[own[pieces]].sum()),
        }
    totals = {
        "sequences": len(rows),
        "tokens": int(lengths.sum()),
        "documents": int((first & used).sum()),
        "parts": int(parts.sum()),
        "padding": padding,
        "max_tokens": int(lengths.max(initial=0)),
        "max_documents": int(parts.max(initial=0)),
    }
    return Receipt(task.name, tuple(info), totals, counts)
