"""JSON lines, plain or compressed: C4, RealNews, The Pile and most others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from corpora.errors import FarspanError
from corpora.readers.blocks import BlockBuilder
from corpora.readers.reader import Reader
from corpora.readers.records import BLOCK_BYTES, DamagedFile, Range
from corpora.readers.streams import Line, Lines, plan_lines, read_lines, text_by_field
from corpora.storage.files import Files

_LOOKED_AT = 100
_DOCUMENT = re.compile(rb"\s*(\[|\{\s*$)")  # an array, or an object over several lines


def read(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """Read each line as a record."""
    return read_lines(piece, files, block, add)


def add(block: BlockBuilder, line: Line) -> None:
    """Add the object on a line as a record; its place is its offset."""
    block.add(line.offset, line.record(), line.data)


def fields(path: str, files: Files) -> dict[str, int]:
    """Map the fields of the first records to the text characters in each; empty without valid records."""
    lines = _first_lines(path, files)
    found = text_by_field(lines)
    if not found and lines and _DOCUMENT.match(lines[0].data):
        raise FarspanError(
            f"{path}: one JSON document, where jsonl has an object on each line; "
            f"convert it, e.g. jq -c '.[]' {path} > records.jsonl"
        )
    return found


def _first_lines(path: str, files: Files) -> list[Line]:
    lines: list[Line] = []
    size = files.size(path)
    with files.open(path) as file:
        try:
            for chunk in Lines(file, Range(path, "jsonl", 0, size, size, size), BLOCK_BYTES, sound=False):
                lines += [line for line in chunk if line.data.strip()]
                if len(lines) >= _LOOKED_AT or sum(line.size for line in lines) >= BLOCK_BYTES:
                    break
        except DamagedFile:
            pass  # reading the file reports it
    return lines[:_LOOKED_AT]


READER = Reader(plan_lines, read, fields, suffixes=(".jsonl", ".ndjson", ".json"))
