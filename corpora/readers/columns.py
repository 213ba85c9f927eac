"""Rows of Arrow columns as records: what Parquet and Arrow files share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from corpora.readers.blocks import BlockBuilder
from corpora.readers.records import BLOCK_BYTES, RAW_BYTES, ReadOptions


def wanted(schema: pa.Schema, options: ReadOptions) -> list[str]:
    """The columns of a file that hold the text, the id and the cluster, as far as it has them."""
    return [name for name in schema.names if name in (options.text_field, options.id_field, options.cluster_field)]


def fields(schema: pa.Schema) -> dict[str, int]:
    """Names of the columns; 1 for those of text, else 0."""
    return {column.name: int(_is_text(column.type)) for column in schema}


def add_rows(block: BlockBuilder, batch: pa.RecordBatch, first: int, schema: pa.Schema) -> Iterator[int]:
    """Add the rows of ``batch``, the first of which is row number ``first`` of its file.

    Args:
        batch: the wanted columns.
        schema: of the file, for messages.

    Yields:
        Rows of the batch done so far, about every ``BLOCK_BYTES``.
    """
    step = max(1, BLOCK_BYTES * len(batch) // max(1, batch.nbytes))
    for start in range(0, len(batch), step):
        part = batch.slice(start, step)
        columns = [_values(column) for column in part.columns]
        for row, values in enumerate(zip(*columns, strict=True) if columns else [()] * len(part), first + start):
            _add(block, row, dict(zip(part.schema.names, values, strict=True)), schema)
        yield start + len(part)


def _add(block: BlockBuilder, row: int, record: dict[str, Any], schema: pa.Schema) -> None:
    options = block.options
    text = record.get(options.text_field)
    if isinstance(text, bytes):
        raw = text
        try:
            text = record[options.text_field] = raw.decode()
        except UnicodeDecodeError as error:
            block.reject(row, "invalid_utf8", raw, f"byte {error.start} of the text: {error.reason}")
            return
    limit = options.max_record_bytes
    # at most 4 bytes a character: most texts need not be encoded to know
    if isinstance(text, str) and 4 * len(text) > limit and (size := len(text.encode())) > limit:
        head = text[:RAW_BYTES].encode()
        block.reject(row, "too_long", head, f"{size:,} bytes, more than --max-record-bytes {limit:,}")
    elif options.text_field not in record:
        block.reject(row, "missing_text", b"", f"no column {options.text_field!r}; it has {', '.join(schema.names)}")
    else:
        block.add(row, record, b"" if text is None else str(text)[:RAW_BYTES].encode())


def _values(column: pa.Array) -> list[Any]:
    """Python values; text that is not UTF-8 as bytes, which Arrow's files do not rule out."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        binary = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
        return binary.to_pylist()


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
