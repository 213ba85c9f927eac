"""JSON lines, plain or compressed: C4, RealNews, The Pile and most others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from corpora.errors import FarspanError
from corpora.files import Files
from corpora.readers.records import BadRecord, BlockBuilder, DamagedFile, Range
from corpora.readers.streams import Line, Lines, read_lines

_LOOKED_AT = 100


def read(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """Each line is a record."""
    return read_lines(piece, files, block, _add)


def _add(block: BlockBuilder, line: Line) -> None:
    block.add(line.offset, parse(line), line.data)


def parse(line: Line) -> dict[str, Any]:
    """The object on a line.

    The standard library parses 450 MB a second, a hundred times what is tokenised, so no faster parser is brought in.

    Raises:
        BadRecord: says what is wrong and where.
    """
    text = line.text()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord("broken_json", str(error)) from error
    if not isinstance(value, dict):
        raise BadRecord("not_an_object", f"a JSON value of type {type(value).__name__}")
    if "\\ud" in text or "\\uD" in text:
        # half a surrogate pair passes as JSON and then fails in every tokenizer
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = ord(error.object[error.start])
            raise BadRecord("invalid_utf8", f"\\u{half:04x} is half of a surrogate pair") from error
    return value


def fields(path: str, files: Files) -> dict[str, int]:
    """Names of the fields of the first records, and characters of text in each; empty when there is no good record.

    Raises:
        FarspanError: the file is one JSON document, not lines.
    """
    found: dict[str, int] = {}
    for line in _first_lines(path, files):
        try:
            record = parse(line)
        except BadRecord as bad:
            if line.offset == 0 and bad.reason != "invalid_utf8" and line.data.lstrip()[:1] in (b"[", b"{"):
                _refuse_document(path, line)
            continue
        for name, value in record.items():
            found[name] = found.get(name, 0) + (len(value) if isinstance(value, str) else 0)
    return found


def _refuse_document(path: str, line: Line) -> None:
    if line.data.strip() in (b"[", b"{", b"[{") or line.data.lstrip().startswith(b"["):
        raise FarspanError(
            f"{path}: one JSON document, where jsonl has an object on each line; "
            f"convert it, e.g. jq -c '.[]' {path} > records.jsonl"
        )


def _first_lines(path: str, files: Files) -> list[Line]:
    lines: list[Line] = []
    size = files.size(path)
    with files.open(path) as file:
        try:
            for chunk in Lines(file, Range(path, "jsonl", 0, size, size), 1 << 20):
                lines += [line for line in chunk if line.size == len(line.data) and line.data.strip()]
                if len(lines) >= _LOOKED_AT:
                    break
        except DamagedFile:
            pass  # whoever reads the file will tell
    return lines[:_LOOKED_AT]
