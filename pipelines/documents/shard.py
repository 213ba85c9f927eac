"""Shards of documents and their rejects, with the counts for receipts, and the stages that make ids unique.

If a field of the data contains the ids, the first of equal ones in input order is kept. The records with the same id
after it are rejected; in data sets of tasks, which repeat a document for each question about it, they are left out
instead. Stage *duplicates* compares the ids of all tasks, one range of hashes per task; stage *unique* writes the final
shards.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import numpy as np
import pyarrow as pa

from corpora.keyed import id_keys, make_key
from corpora.readers import Reject
from corpora.schemas.documents import DOCUMENT_TOTALS, add_document_totals, documents_schema
from corpora.storage import files
from corpora.storage.arrow_views import booleans, numbers
from corpora.storage.manifest import Receipt, ShardInfo
from corpora.storage.shards import ShardWriter, write_shard
from pipelines.engine.job import Report, Stage, Task, count_by_source, make_sharded_stage, work_paths
from pipelines.shuffle.intermediate import first_of_key, read_array, read_checked_shard, write_array, write_checksum

REJECTS_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("source", "path", "record", "reason", "detail")] + [("raw", pa.binary())]
)


def plain(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return counts as JSON can hold them."""
    return {source: dict(numbers) for source, numbers in counts.items()}


class DocumentsShard:
    """A shard of documents and the counts of its rows: ``DOCUMENT_TOTALS``, and for each source what is ``written``.

    ``ids`` are those of the rows, if ``keep_ids``; ``info`` is there once ``create`` has ended.
    """

    ROWS_PER_BATCH = 1024

    def __init__(self, writer: ShardWriter, keep_ids: bool) -> None:
        self._writer, self._keep_ids = writer, keep_ids
        self.totals = dict.fromkeys(DOCUMENT_TOTALS, 0)
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.ids: list[str] = []
        self.info: tuple[ShardInfo, ...] = ()

    @classmethod
    @contextmanager
    def create(
        cls, path: str, vocab_size: int, compression: str | None, keep_ids: bool = False, titles: bool = False
    ) -> Iterator[DocumentsShard]:
        """Create a shard, which appears when the ``with`` block ends without an error."""
        schema = documents_schema(vocab_size, titles)
        with write_shard(path, schema, cls.ROWS_PER_BATCH, compression) as (writer, info):
            shard = cls(writer, keep_ids)
            yield shard
        shard.info = tuple(info)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)
        add_document_totals(self.totals, batch)
        lengths = np.diff(numbers(batch.column("tokens").offsets))  # (documents,)
        held_out, written = lengths * booleans(batch.column("held_out")), np.ones(len(batch), bool)
        sources = np.asarray(batch.column("source").to_pylist(), object)
        counts = count_by_source(sources, written=written, tokens=lengths, held_out_tokens=held_out)
        for source, count in counts.items():
            self.counts[source].update(count)
        if self._keep_ids:
            self.ids += batch.column("document_id").to_pylist()


class RejectsShard:
    """Rejected records, written as they occur; at most ``ROWS`` rows or ``BYTES`` bytes wait in memory.

    ``reasons`` has the number of rejected records by reason.
    """

    ROWS = 1024
    BYTES = 4 << 20

    def __init__(self, path: str, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._writer: pa.RecordBatchFileWriter | None = None
        self._rows: list[tuple[str, str, str, str, str, bytes]] = []
        self._bytes = 0
        self.reasons: Counter[str] = Counter()

    @classmethod
    @contextmanager
    def create(cls, output: str, task: str) -> Iterator[RejectsShard]:
        """Create the file of a task when the ``with`` block ends without an error, if a record was rejected."""
        with ExitStack() as stack:
            shard = cls(os.path.join(output, "rejects", f"{task}.arrow"), stack)
            yield shard
            shard._flush()
            if shard._writer:
                shard._writer.close()

    def write(self, source: str, name: str, rejects: Iterable[Reject]) -> None:
        """Add rejected records of the file ``name`` (a relative path) of a source."""
        for reject in rejects:
            self.reasons[reject.reason] += 1
            self._rows.append((source, name, reject.key, reject.reason, reject.detail, reject.raw))
            self._bytes += len(reject.raw)
            if len(self._rows) == self.ROWS or self._bytes >= self.BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            file = self._stack.enter_context(files.create(self._path))
            self._writer = pa.ipc.new_file(pa.PythonFile(file, "w"), REJECTS_SCHEMA)
        columns = zip(*self._rows, strict=True)
        arrays = [pa.array(values, kind) for values, kind in zip(columns, REJECTS_SCHEMA.types, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=REJECTS_SCHEMA))
        self._rows, self._bytes = [], 0


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
