"""Pairs of your own: JSON lines or Parquet, one question with its answers in each record.

Options name the fields; fields that have no meaning become attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from corpora.readers import columns
from corpora.readers.blocks import DOCUMENT_ID, BlockBuilder
from corpora.readers.formats import parquet
from corpora.readers.options import PAIRS_OF
from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask, text_key
from corpora.readers.records import BadRecord, Range, missing_field
from corpora.readers.task_files import JSON_LINES, by_name, json_lines, task_reader

_DOCUMENT, _DOCUMENTS = "document", "documents"
_QUERIES = ("query", "question")
_REFERENCES = ("references", "reference", "answers", "answer")


def parse(record: dict[str, Any], place: Place) -> RawTask:
    """Parse the documents of a record and its pair."""
    options = place.options
    field = options.text_field
    if field == _DOCUMENT and field not in record and _DOCUMENTS in record:
        field = _DOCUMENTS
    texts = _texts(record, field)
    if not texts:
        known = ", ".join(record)[:1000]
        raise BadRecord("missing_text", f"{field!r} holds no text; its fields: {known}; name it with --text-field")
    id_field = str(options.id_field)
    keys = _keys(record, id_field, texts)
    documents = [RawDocument(key, text) for key, text in zip(keys, texts, strict=True)]
    if not str(options.format).startswith(PAIRS_OF):
        return RawTask(documents, [])
    fields = options.pairs
    answer = fields.reference_field or _first_with_value(record, _REFERENCES)
    query_field = _query_field(record, fields.query_field)
    query = _texts(record, query_field)
    if len(query) > 1:
        raise BadRecord("not_a_string", f"{query_field!r} is a list of {len(query)} texts, not one")
    split = record.get(fields.split_field or "split")
    used = {field, id_field, query_field, answer, fields.options_field}
    used |= {fields.pair_id_field or "id", fields.split_field or "split"}
    pair = RawPair(
        pair_id=_pair_id(record, fields.pair_id_field, [*keys, *query]),
        documents=tuple(keys),
        query="".join(query),
        targets=_texts(record, answer),
        options=_texts(record, fields.options_field) or None,
        split=None if split is None else str(split),
        attributes={name: _plain(value) for name, value in record.items() if name not in used},
    )
    return RawTask(documents, [pair])


def _query_field(record: dict[str, Any], named: str | None) -> str:
    """Return the field with the question; a record may lack it unless an option names it."""
    if named is not None and named not in record:
        raise missing_field(record, named, "missing_query")
    return named or _first_with_value(record, _QUERIES)


def _first_with_value(record: dict[str, Any], names: tuple[str, ...]) -> str:
    """Return the first of ``names`` that has a value; without any, the first that the record has."""
    present = [name for name in names if name in record] or list(names)
    return next((name for name in present if record.get(name) is not None), present[0])


def _texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the text in a field, or the texts of its list; empty if it is missing or null."""
    value = record.get(name)
    values = [] if value is None else value if isinstance(value, list) else [value]
    if strange := [one for one in values if not isinstance(one, str)]:
        raise BadRecord("not_a_string", f"{name!r} holds a value of type {type(strange[0]).__name__}, not only text")
    return tuple(values)


def _keys(record: dict[str, Any], name: str, texts: tuple[str, ...]) -> list[str]:
    """Return the key of each text."""
    value = record.get(name)
    if value is None:
        if name != DOCUMENT_ID:
            raise missing_field(record, name, "missing_id")
        return [text_key(text) for text in texts]
    keys = value if isinstance(value, list) else [value]
    if len(keys) != len(texts) or not all(_is_id(key) for key in keys):
        raise BadRecord("missing_id", f"{name!r} is {str(value)[:100]!r}, not {len(texts)} strings or integers")
    return [str(key) for key in keys]


def _pair_id(record: dict[str, Any], name: str | None, parts: list[str]) -> str:
    """Return the pair's own id, or a hash of its documents and query."""
    value = record.get(name or "id")
    if value is None and name is None:
        return text_key("\0".join(parts))
    if not _is_id(value):
        raise BadRecord("missing_id", f"{name or 'id'!r} is {str(value)[:100]!r}, not a string or integer")
    return str(value)


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _plain(value: Any) -> Any:
    """Convert a value to one that JSON can hold."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def read_table(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each row of a Parquet file as a record."""

    def add_row(row: int, record: dict[str, Any]) -> None:
        with block.reject_if_bad(row):
            block.add_task(row, parse, record)

    def add_rows(block: BlockBuilder, batch: pa.RecordBatch, first: int, schema: pa.Schema) -> Iterator[int]:
        return columns.pass_rows(block, batch, first, add_row)

    return parquet.read_columns(piece, block, lambda schema: list(schema.names), add_rows)


_LAYOUTS = {JSON_LINES: json_lines(parse, text_field=_DOCUMENT), r".*\.parquet": task_reader(parquet.plan, read_table)}
READERS = {"pairs": by_name(_LAYOUTS, text_field=_DOCUMENT)}
