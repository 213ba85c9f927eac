"""Shards of documents and their rejects, with the counts for receipts."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa

from corpora.readers import Reject
from corpora.schemas.documents import DOCUMENT_TOTALS, add_document_totals, documents_schema
from corpora.storage import files
from corpora.storage.arrow_views import booleans, numbers
from corpora.storage.manifest import ShardInfo
from corpora.storage.shards import ShardWriter, write_shard
from pipelines.engine.job import count_by_source

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
