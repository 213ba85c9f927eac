"""JSON lines, plain or compressed: C4, RealNews, The Pile and most others."""

from __future__ import annotations

import re
from functools import partial

from corpora.errors import FarspanError
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import BLOCK_BYTES
from corpora.readers.streams import Line, Lines, first_lines, plan_lines, read_lines, text_by_field, whole_range
from corpora.storage import files

_DOCUMENT = re.compile(rb"\s*(\[|\{\s*$)")  # an array, or an object over several lines


def add(block: BlockBuilder, line: Line) -> None:
    """Add the object on a line as a record; its place is its offset."""
    block.add(line.offset, line.record(), line.data)


def fields(path: str) -> dict[str, int]:
    """Map the fields of the first records to the text characters in each; empty without valid records."""
    with files.open(path) as file:
        lines = first_lines(Lines(file, whole_range(path), BLOCK_BYTES, sound=False))
    fields = text_by_field(lines)
    if not fields and lines and _DOCUMENT.match(lines[0].data):
        raise FarspanError(
            f"{path}: one JSON document, where jsonl has an object on each line; "
            f"convert it, e.g. jq -c '.[]' {path} > records.jsonl"
        )
    return fields


READER = Reader(plan_lines, partial(read_lines, add=add), fields, suffixes=(".jsonl", ".ndjson", ".json"))
