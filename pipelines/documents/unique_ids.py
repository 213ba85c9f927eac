"""Unique document ids if a field of the data contains them: the first of equal ones in input order is kept.

The records with the same id after it are rejected; in data sets of tasks, which repeat a document for each question
about it, they are left out instead.

Stage *duplicates* compares the ids of all tasks, one range of hashes per task; stage *unique* writes the final shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.readers import Reject
from corpora.storage.manifest import Receipt, ShardInfo
from pipelines.documents.shard import DocumentsShard, RejectsShard, plain
from pipelines.engine.job import Report, Stage, Task, make_sharded_stage, work_paths
from pipelines.shuffle.intermediate import first_of_key, read_array, read_checked_shard, write_array, write_checksum

_KEY = make_key(0, "duplicates")
_TASKS_PER_RANGE = 16


def ids_path(shard: str) -> str:
    """Return the path of the hashes of a shard's ids."""
    return shard.removesuffix(".arrow") + ".ids.npy"


def write_ids(shard: str, ids: Sequence[str], info: ShardInfo) -> None:
    """Write the 128-bit hashes of a shard's ids with their rows, sorted ``(n, 3)`` uint64, and the shard's checksum."""
    keys = id_keys(_KEY, ids)
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    write_array(ids_path(shard), np.column_stack([keys[order], order.astype(np.uint64)]))
    write_checksum(shard, info)


def unique_stages(
    output: str,
    waiting: Sequence[str],
    shards: Sequence[str],
    vocab_size: int,
    compression: str | None,
    repeating: frozenset[str] = frozenset(),
    titles: bool = False,
) -> list[Stage]:
    """Declare the two stages that write the final ``shards`` from the ``waiting`` ones, one path per task.

    Repeated documents of the sources ``repeating`` are left out; those of others are rejected.
    """
    ranges = -(-len(waiting) // _TASKS_PER_RANGE)
    duplicates = work_paths(output, "duplicates", ranges, ".npy")
    find = partial(_find_duplicates, waiting, ranges)
    write = partial(_write_unique, output, duplicates, vocab_size, compression, repeating, titles)
    return [
        make_sharded_stage("duplicates", find, "ranges", [1] * ranges, duplicates=duplicates),
        make_sharded_stage("unique", write, "shards", [1] * len(shards), waiting=waiting, shard=shards),
    ]


def find_repeated(keys: Sequence[np.ndarray]) -> np.ndarray:
    """Find records whose id occurred before, in the order of tasks and rows: ``(m, 2)`` uint64, task and row.

    ``keys`` has for each task ``(n, 3)`` uint64: 128-bit key and row.
    """
    tasks = np.repeat(np.arange(len(keys), dtype=np.uint64), [len(part) for part in keys])
    flat = np.concatenate(keys) if len(keys) else np.empty((0, 3), np.uint64)
    order = np.lexsort((flat[:, 2], tasks, flat[:, 1], flat[:, 0]))
    flat, tasks = flat[order], tasks[order]
    again = ~first_of_key(flat[:, :2])
    return np.column_stack([tasks[again], flat[again, 2]])


def _find_duplicates(waiting: Sequence[str], ranges: int, task: Task, report: Report) -> Receipt:
    """Find duplicates among the ids whose hashes lie in one of ``ranges`` equal ranges."""
    index = task.payload["index"]
    bounds = [np.uint64(min((place << 64) // ranges, 2**64 - 1)) for place in (index, index + 1)]
    last = index + 1 == ranges
    parts = []
    for shard in waiting:
        keys = read_array(ids_path(shard), mapped=True)
        start = int(np.searchsorted(keys[:, 0], bounds[0]))
        stop = len(keys) if last else int(np.searchsorted(keys[:, 0], bounds[1]))
        parts.append(np.asarray(keys[start:stop]))
    write_array(task.payload["duplicates"], find_repeated(parts))
    return Receipt(task.name)


def _write_unique(
    output: str,
    duplicates: Sequence[str],
    vocab_size: int,
    compression: str | None,
    repeating: frozenset[str],
    titles: bool,
    task: Task,
    report: Report,
) -> Receipt:
    """Write a final shard: a waiting one without the records whose ids occurred before."""
    repeated = np.concatenate([read_array(name) for name in duplicates])  # (m, 2): task, row
    again = repeated[repeated[:, 0] == task.payload["index"], 1].astype(np.int64)
    with (
        RejectsShard.create(output, task.name) as rejects,
        DocumentsShard.create(task.payload["shard"], vocab_size, compression, titles=titles) as shard,
    ):
        first = 0
        for batch in read_checked_shard(task.payload["waiting"]):
            keep = ~np.isin(np.arange(first, first + len(batch)), again)
            for row in np.flatnonzero(~keep).tolist():
                source, name = batch.column("source")[row].as_py(), batch.column("document_id")[row].as_py()
                shard.counts[source]["filtered" if source in repeating else "rejected"] += 1
                if source not in repeating:
                    key = name.removeprefix(f"{source}:")
                    rejects.write(source, "", [Reject("", key, "duplicate_id", b"", "an earlier record has this id")])
            shard.write(batch.filter(pa.array(keep)))
            first += len(batch)
    return Receipt(task.name, shard.info, shard.totals, plain(shard.counts), dict(rejects.reasons))
