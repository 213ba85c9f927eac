"""Writers of one shard of documents and of its rejects, with the counts for the receipt."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType

import numpy as np
import pyarrow as pa

from corpora.readers import Reject
from corpora.schemas.documents import DOCUMENT_TOTALS, add_document_totals, documents_schema
from corpora.storage import files
from corpora.storage.arrow_views import booleans, numbers
from corpora.storage.manifest import ShardInfo
from corpora.storage.shards import write_shard

REJECTS_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("source", "path", "record", "reason", "detail")] + [("raw", pa.binary())]
)


class DocumentsShard:
    """Writes a shard of documents and counts its rows: ``DOCUMENT_TOTALS``, and for each source what is ``written``.

    ``ids`` are those of the rows, if ``keep_ids``; ``info`` is there once the ``with`` block has ended.
    """

    ROWS_PER_BATCH = 1024

    def __init__(
        self, path: str, vocab_size: int, compression: str | None, keep_ids: bool = False, titles: bool = False
    ) -> None:
        self._place = (path, documents_schema(vocab_size, titles), self.ROWS_PER_BATCH, compression)
        self._keep_ids = keep_ids
        self._stack = ExitStack()
        self.totals = dict.fromkeys(DOCUMENT_TOTALS, 0)
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.ids: list[str] = []
        self._info: list[ShardInfo] = []

    @property
    def info(self) -> tuple[ShardInfo, ...]:
        return tuple(self._info)

    def __enter__(self) -> DocumentsShard:
        self._writer, self._info = self._stack.enter_context(write_shard(*self._place))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)
        add_document_totals(self.totals, batch)
        # (documents,) tokens, and True for held-out documents
        lengths = np.diff(numbers(batch.column("tokens").offsets))
        held = booleans(batch.column("held_out"))
        sources = np.asarray(batch.column("source").to_pylist(), object)
        for source in set(sources):
            one = sources == source
            added = {"written": one.sum(), "tokens": lengths[one].sum(), "held_out_tokens": lengths[one & held].sum()}
            self.counts[source].update({name: int(number) for name, number in added.items()})
        if self._keep_ids:
            self.ids += batch.column("document_id").to_pylist()


class RejectsShard:
    """Writes rejected records as they occur; at most ``ROWS`` rows or ``BYTES`` bytes wait in memory.

    The file appears when the ``with`` block ends without an error, and only if a record was rejected. ``reasons`` has
    the number of rejected records by reason.
    """

    ROWS = 1024
    BYTES = 4 << 20

    def __init__(self, path: str) -> None:
        self._path = path
        self._stack = ExitStack()
        self._writer: pa.RecordBatchFileWriter | None = None
        self._rows: list[tuple[str, str, str, str, str, bytes]] = []
        self._bytes = 0
        self.reasons: Counter[str] = Counter()

    def __enter__(self) -> RejectsShard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is None:
            try:
                self._flush()
                if self._writer:
                    self._writer.close()
            except BaseException:
                self._stack.__exit__(*sys.exc_info())
                raise
        return self._stack.__exit__(kind, error, trace)

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
