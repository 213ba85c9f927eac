"""Parquet files, cut at row groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from corpora.readers import columns
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import BLOCK_BYTES, Cut, DamagedFile, Range, group
from corpora.storage import files

_MOST_ROWS = 4096
_MOST_FRONT_CODED = 64  # rows per batch: each may repeat the whole text before it
_DICTIONARIES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}
_FRONT_CODED = "DELTA_BYTE_ARRAY"
Wanted = Callable[[pa.Schema], list[str]]
AddRows = Callable[[BlockBuilder, pa.RecordBatch, int, pa.Schema], Iterator[int]]
"""Takes a batch, the number of its first row in the file, and the file's schema; yields the rows done so far."""


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a file between row groups."""
    with _open(path) as file:
        metadata = file.metadata
        return group(
            [metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)], target_bytes
        )


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each row as a record."""
    return read_columns(piece, block, lambda schema: columns.wanted_columns(schema, block.options), columns.add_rows)


def read_columns(piece: Range, block: BlockBuilder, wanted: Wanted, add_rows: AddRows) -> Iterator[int]:
    """Pass the wanted columns of a range to ``add_rows``, batch by batch."""
    with _open(piece.path) as file:
        metadata = file.metadata
        names = wanted(file.schema_arrow)
        encodings = _encodings(metadata, names, piece)
    # text may be a thousand times as large as its dictionary, so it stays encoded until ``add_rows`` decodes a few rows
    with _open(piece.path, [path for path, used in encodings.items() if used & _DICTIONARIES]) as file:
        metadata = file.metadata
        rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        first, total = sum(rows[: piece.start]), sum(rows[piece.start : piece.stop])
        begin = first
        fronts = any(_FRONT_CODED in used for used in encodings.values())
        most = _MOST_FRONT_CODED if fronts else _MOST_ROWS
        batches = file.iter_batches(
            max(1, min(most, BLOCK_BYTES * total // max(1, piece.bytes))),
            list(range(piece.start, piece.stop)),
            columns=names,
            use_threads=False,
        )
        while True:
            try:
                batch = next(batches, None)
                if batch is not None:
                    columns.check_batch(batch)
            except (OSError, pa.ArrowException) as error:
                damaged = DamagedFile(error, first)
                damaged.lost = _read_stored_bytes(metadata, piece) * (total - first + begin) // max(1, total)
                raise damaged from error
            if batch is None:
                return
            for done in add_rows(block, batch, first, file.schema_arrow):
                yield piece.bytes * (first - begin + done) // total
            first += len(batch)


def fields(path: str) -> dict[str, int]:
    """Map the columns of the file to the text in them, by ``columns.fields``."""
    with _open(path) as file:
        return columns.fields(file.schema_arrow)


@contextmanager
def _open(path: str, dictionaries: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    # with a buffer, pages are read on demand rather than a whole row group at once
    with (
        files.open(path) as file,
        pq.ParquetFile(file, buffer_size=1 << 20, read_dictionary=list(dictionaries)) as parquet,
    ):
        yield parquet


def _encodings(metadata: pq.FileMetaData, names: Sequence[str], piece: Range) -> dict[str, set[str]]:
    """Map the path of each wanted text column to the encodings of its pages in the range."""
    encodings: dict[str, set[str]] = {}
    for index in range(piece.start, piece.stop):
        group = metadata.row_group(index)
        for column in map(group.column, range(metadata.num_columns)):
            path = column.path_in_schema
            if column.physical_type == "BYTE_ARRAY" and any(
                path == name or path.startswith(f"{name}.") for name in names
            ):
                encodings.setdefault(path, set()).update(column.encodings)
    return encodings


def _read_stored_bytes(metadata: pq.FileMetaData, piece: Range) -> int:
    """Return the bytes of the range as stored in the file; ``piece.bytes`` counts uncompressed bytes."""
    groups = map(metadata.row_group, range(piece.start, piece.stop))
    return sum(group.column(index).total_compressed_size for group in groups for index in range(metadata.num_columns))


READER = Reader(plan, read, fields, suffixes=(".parquet",), native=True)
