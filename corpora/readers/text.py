"""Plain text, plain or compressed: a file is a document (``text``), or each line is one (``lines``)."""

from __future__ import annotations

from collections.abc import Iterator

from corpora.files import Files
from corpora.readers.records import RAW_BYTES, BadRecord, BlockBuilder, Cut, DamagedFile, Range
from corpora.readers.streams import STREAM_ERRORS, Line, chunks, read_lines


def plan_file(path: str, files: Files, target_bytes: int) -> list[Cut]:
    return [Cut(0, 1, files.size(path))]


def read_file(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """The whole file is one record, its line ends as they are; a damaged file is none."""
    limit = block.options.max_record_bytes
    pieces: list[bytes] = []
    size = 0
    with files.open(piece.path) as file:
        try:
            for chunk in chunks(file, piece.path):
                pieces.append(chunk)
                size += len(chunk)
                if size > limit:
                    break
        except STREAM_ERRORS as error:
            raise DamagedFile(error, 0, b"".join(pieces)[:RAW_BYTES]) from error
    data = b"".join(pieces)
    try:
        if size > limit:
            raise BadRecord("too_long", f"more than --max-record-bytes {limit:,}")
        _add(block, Line(0, data, size))
    except BadRecord as bad:
        block.reject(0, bad.reason, data, str(bad))
    yield piece.bytes


def read_each_line(piece: Range, files: Files, block: BlockBuilder) -> Iterator[int]:
    """Each line is a record, without its line end."""
    return read_lines(piece, files, block, _add_line)


def _add(block: BlockBuilder, line: Line) -> None:
    text = line.text()
    block.add(line.offset, {block.options.text_field: text}, line.data)


def _add_line(block: BlockBuilder, line: Line) -> None:
    _add(block, line._replace(data=line.data.removesuffix(b"\r")))
