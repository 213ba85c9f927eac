"""Rows of Arrow columns as records, for Parquet and Arrow files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.readers.blocks import BlockBuilder
from corpora.readers.options import ReadOptions
from corpora.readers.records import BLOCK_BYTES, RAW_BYTES, BadRecord

_MOST_ROWS = 4096
_ITEM_BYTES = 16
_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def wanted_columns(schema: pa.Schema, options: ReadOptions) -> list[str]:
    """Return the names of those columns of a file that hold the text, the id, the cluster or the title."""
    named = {options.text_field, *(name for _, name in options.named_fields)}
    return [name for name in schema.names if name in named]


def fields(schema: pa.Schema) -> dict[str, int]:
    """Map the name of each column to 1 for a text column, else 0."""
    return {column.name: int(_is_text(column.type)) for column in schema}


def check_batch(batch: pa.RecordBatch) -> None:
    """Check that all offsets, lengths and indices of a batch are inside its buffers; others can crash Arrow.

    Text that is not UTF-8 is a bad record, not damage of the file.
    """
    for column in batch.columns:
        kind = _as_bytes(column.type)
        (column if kind == column.type else column.view(kind)).validate(full=True)


def add_rows(block: BlockBuilder, batch: pa.RecordBatch, first: int, schema: pa.Schema) -> Iterator[int]:
    """Add the rows of a checked batch of the wanted columns, which begins with row number ``first`` of its file.

    The ``schema`` of the file is for messages.
    """
    return pass_rows(block, batch, first, lambda row, record: _add(block, row, record, schema))


def pass_rows(
    block: BlockBuilder, batch: pa.RecordBatch, first: int, add: Callable[[int, dict[str, Any]], None]
) -> Iterator[int]:
    """Pass the number and the values of each row to ``add``; rows that are too long are rejected.

    A few bytes of a file may expand to gigabytes (dictionaries, runs, views of one buffer), so rows are converted to
    Python values about ``BLOCK_BYTES`` at a time. After each time, yields the number of rows done so far.
    """
    names, kinds = batch.schema.names, batch.schema.types
    nested = any(pa.types.is_nested(kind) or pa.types.is_run_end_encoded(kind) for kind in kinds)
    for begin in range(0, len(batch), _MOST_ROWS):
        part = batch.slice(begin, _MOST_ROWS)
        sizes = sum((_sizes(column) for column in part.columns), np.zeros(len(part), np.int64))  # (n,) bytes
        for start, stop in _pieces(sizes):
            if nested and sizes[start] > block.options.max_record_bytes:
                detail = f"{sizes[start]:,} bytes, more than --max-record-bytes {block.options.max_record_bytes:,}"
                block.reject(first + begin + start, "too_long", b"", detail)
            else:
                columns = [_values(column.slice(start, stop - start)) for column in part.columns]
                rows = zip(*columns, strict=True) if columns else [()] * (stop - start)
                for row, values in enumerate(rows, first + begin + start):
                    add(row, dict(zip(names, values, strict=True)))
            yield begin + stop


def _pieces(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Split rows of ``(n,)`` sizes into pieces of at most ``BLOCK_BYTES``, or of one larger row."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + BLOCK_BYTES, "right")))
        yield start, stop
        start = stop


def _sizes(array: pa.Array) -> np.ndarray:
    """Return the bytes of each value after expansion, ``(n,)`` int64; the size of numbers is estimated."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        values = np.append(_sizes(array.dictionary), 0)
        return values[array.indices.cast(pa.int64()).fill_null(len(values) - 1).to_numpy()]
    if pa.types.is_run_end_encoded(kind):
        places = np.searchsorted(array.run_ends.to_numpy(), array.offset + np.arange(len(array)), "right")
        return _sizes(array.values)[places]
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)  # the length is the first of four
        return views[array.offset : array.offset + len(array), 0].astype(np.int64)
    if any(is_kind(kind) for is_kind in _BYTES):
        import pyarrow.compute as pc  # slow to import, and JSON does not need it

        return pc.binary_length(array).cast(pa.int64()).fill_null(0).to_numpy()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        return _sums(array.values if not pa.types.is_map(kind) else array.items, offsets[:-1], offsets[1:])
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        return _sums(array.values, offsets, offsets + array.sizes.to_numpy())
    if pa.types.is_fixed_size_list(kind):
        offsets = (array.offset + np.arange(len(array) + 1)) * kind.list_size
        return _sums(array.values, offsets[:-1], offsets[1:])
    if pa.types.is_struct(kind):
        return sum(map(_sizes, array.flatten()), np.full(len(array), _ITEM_BYTES, np.int64))
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(array.storage)
    return np.full(len(array), _ITEM_BYTES, np.int64)


def _sums(items: pa.Array, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Return the total bytes of the items between starts and stops, all ``(n,)`` int64."""
    if not len(starts):
        return np.zeros(0, np.int64)
    low, high = int(starts.min()), int(max(stops.max(), starts.min()))
    sums = np.append(0, np.cumsum(_sizes(items.slice(low, high - low)) + _ITEM_BYTES))
    return np.asarray(sums[np.maximum(stops, starts) - low] - sums[starts - low] + _ITEM_BYTES)


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Replace text by bytes in a type, so that Arrow checks offsets only."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_string_view(kind):
        return pa.binary_view()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_as_bytes(kind.value_type)))
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    return kind


def _add(block: BlockBuilder, row: int, record: dict[str, Any], schema: pa.Schema) -> None:
    options = block.options
    for name, meaning in ((options.text_field, "the text"), (options.title_field, "the title")):
        if name is None or name not in record:
            continue
        value = record[name]
        try:
            record[name] = _decode(value, meaning, options.max_record_bytes)
        except BadRecord as bad:
            head = value[:RAW_BYTES]
            block.reject(row, bad.reason, head if isinstance(head, bytes) else head.encode(), str(bad))
            return
    if options.text_field not in record:
        block.reject(row, "missing_text", b"", f"no column {options.text_field!r}; it has {', '.join(schema.names)}")
    else:
        text = record[options.text_field]
        block.add(row, record, b"" if text is None else str(text)[:RAW_BYTES].encode())


def _decode(value: Any, meaning: str, limit: int) -> Any:
    """Decode a value that Arrow gives as bytes, and check the length of text."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            raise BadRecord("invalid_utf8", f"byte {error.start} of {meaning}: {error.reason}") from error
    # a character has at most 4 bytes, so most texts need not be encoded to check their size
    if isinstance(value, str) and 4 * len(value) > limit and (size := len(value.encode())) > limit:
        raise BadRecord("too_long", f"{size:,} bytes, more than --max-record-bytes {limit:,}")
    return value


def _values(column: pa.Array) -> list[Any]:
    """Convert a column to Python values; if Arrow's text is not UTF-8, all are returned as bytes."""
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
