"""Plain text, also compressed: each file is a document (``text``), or each line is one (``lines``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import RAW_BYTES, BadRecord, Cut, DamagedFile, Range
from corpora.readers.streams import Line, whole_file
from corpora.storage import files


def plan_file(path: str, target_bytes: int) -> list[Cut]:
    """Return one range, because a file is one record."""
    return [Cut(0, 1, files.size(path))]


def read_file(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read the whole file as one record, with unchanged line ends."""
    add_whole(block, 0, whole_file(piece.path, block.options.max_record_bytes))
    yield piece.bytes


def add_whole(block: BlockBuilder, key: int | str, data: bytes) -> None:
    """Add a whole file or archive member; data above the limit, of which the rest was not read, is rejected."""
    limit = block.options.max_record_bytes
    with block.reject_if_bad(key, data):
        if len(data) > limit:
            raise BadRecord("too_long", f"more than --max-record-bytes {limit:,}")
        block.add(key, {block.options.text_field: Line(0, data, len(data)).text()}, data)


def _add(block: BlockBuilder, line: Line) -> None:
    text = line.text()
    block.add(line.offset, {block.options.text_field: text}, line.data)


def add_line(block: BlockBuilder, line: Line) -> None:
    """Add a line as a record, without its line end."""
    _add(block, line._replace(data=line.data.removesuffix(b"\r")))


@contextmanager
def gather_lines(block: BlockBuilder) -> Iterator[GatheredLines]:
    """Yield a record of lines; the last one is added at the end, and damage of the file is placed at its first line."""
    gathered = GatheredLines(block)
    try:
        yield gathered
    except DamagedFile as damaged:
        if gathered.place:
            damaged.key, damaged.raw = str(gathered.place[0]), gathered.place[1]
        raise
    gathered.add()


class GatheredLines:
    """Consecutive lines collected into one record, with the place of the first, in bounded memory."""

    def __init__(self, block: BlockBuilder) -> None:
        self._block = block
        self._lines: list[bytes] = []
        self._offset = self._size = 0

    def append(self, line: Line) -> None:
        if not self._size:
            self._offset = line.offset
        self._size += line.size + 1
        if self._size <= self._block.options.max_record_bytes or not self._lines:
            self._lines.append(line.data)

    @property
    def place(self) -> tuple[int, bytes] | None:
        """Offset and first bytes; None if there is no line."""
        return (self._offset, b"\n".join(self._lines)[:RAW_BYTES]) if self._size else None

    def add(self) -> None:
        """Add the record to the block and start the next one; blank lines alone are not a record."""
        whole = Line(self._offset, b"\n".join(self._lines), self._size - 1)
        self._lines, self._size = [], 0
        if not whole.data.strip():
            return
        with self._block.reject_if_bad(whole.offset, whole.data):
            whole.check_size(self._block.options.max_record_bytes)
            _add(self._block, whole)


READER = Reader(plan_file, read_file, suffixes=(".txt", ".text", ".md", ".rst"))
