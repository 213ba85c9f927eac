"""Parquet files, cut at row groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from corpora.files import Files
from corpora.readers import columns
from corpora.readers.blocks import BlockBuilder
from corpora.readers.records import BLOCK_BYTES, Cut, DamagedFile, Range, group

_MOST_ROWS = 4096


def plan(path: str, files: Files, target_bytes: int) -> list[Cut]:
    with _open(path, files) as file:
        metadata = file.metadata
        return group(
            [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)], target_bytes
        )


def read(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """Each row is a record."""
    with _open(piece.path, files) as file:
        metadata = file.metadata
        rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        first, total = sum(rows[: piece.start]), sum(rows[piece.start : piece.stop])
        begin = first
        names = columns.wanted(file.schema_arrow, block.options)
        batches = file.iter_batches(
            max(1, min(_MOST_ROWS, BLOCK_BYTES * total // max(1, piece.bytes))),
            list(range(piece.start, piece.stop)),
            columns=names,
            use_threads=False,
        )
        while True:
            try:
                batch = next(batches, None)
            except (OSError, pa.ArrowException) as error:
                raise DamagedFile(error, first) from error
            if batch is None:
                return
            for done in columns.add_rows(block, batch, first, file.schema_arrow):
                yield piece.bytes * (first - begin + done) // total
            first += len(batch)


def fields(path: str, files: Files) -> dict[str, int]:
    with _open(path, files) as file:
        return columns.fields(file.schema_arrow)


@contextmanager
def _open(path: str, files: Files) -> Iterator[pq.ParquetFile]:
    # with a buffer, pages are read as they are needed, and not a row group at once
    with files.open(path) as file, pq.ParquetFile(file, buffer_size=1 << 20) as parquet:
        yield parquet
