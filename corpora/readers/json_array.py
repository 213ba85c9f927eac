"""Record-by-record reading of one JSON array of any size, or of a file with one record per line."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from corpora.readers.blocks import BlockBuilder
from corpora.readers.records import RAW_BYTES, Cut, DamagedFile, Range
from corpora.readers.streams import (
    STREAM_ERRORS,
    Line,
    Lines,
    add_lines,
    chunks,
    first_lines,
    plan_lines,
    text_by_field,
    whole_range,
)
from corpora.storage import files

Add = Callable[[BlockBuilder, Line], None]
_OUTER = re.compile(rb'[^"\[\]{},]*+')  # up to a character that may end a record of the array
_INNER = re.compile(rb'[^"\[\]{}]*+')  # up to a string or a bracket, inside a record
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)  # up to the string's end or that of the data
_LOOKED_AT = 1 << 20


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a file of lines; an array is one range."""
    with files.open(path) as file:
        array = is_array(file, path)
    return [Cut(0, 1, files.size(path))] if array else plan_lines(path, target_bytes)


def read(piece: Range, block: BlockBuilder, add: Add) -> Iterator[int]:
    """Pass every record of the range to ``add`` as JSON text; its place is its offset in the file."""
    limit = block.options.max_record_bytes
    with files.open(piece.path) as file:
        if is_array(file, piece.path):
            yield from add_lines(_Elements(file, piece, limit), block, add)
        else:
            yield from add_lines(Lines(file, piece, limit), block, add)


def read_field(piece: Range, block: BlockBuilder, field: str, add: Add) -> Iterator[int]:
    """Pass every element of the array in a field of the file's one object to ``add``; its place is its number.

    Fields before it must not be nested; anything after the array is not read.
    """
    limit = block.options.max_record_bytes
    number = 0
    with files.open(piece.path) as file:
        elements = _Elements(file, piece, limit, field=field)
        try:
            for lines in elements:
                for line in lines:
                    with block.reject_if_bad(number, line.data):
                        line.check_size(limit)
                        add(block, line._replace(offset=number))
                    number += 1
                yield elements.position
        except DamagedFile as damaged:
            damaged.key = str(number)
            raise


def is_array(file: BinaryIO, path: str) -> bool:
    """Return True if the file is one array rather than lines of records that may be arrays; rewinds the file.

    Looks at the first MiB: if the first line is a whole array and the second one starts an array, they are two records.
    """
    try:
        head = next(chunks(file, path), b"")[:_LOOKED_AT]
    except STREAM_ERRORS:
        head = b""
    file.seek(0)
    lines = [line.strip() for line in head.removeprefix(codecs.BOM_UTF8).split(b"\n") if line.strip()]
    if not lines or not lines[0].startswith(b"["):
        return False
    return not (lines[0].endswith(b"]") and len(lines) > 1 and lines[1].startswith(b"["))


def fields(path: str) -> dict[str, int]:
    """Map the fields of the first valid objects to the number of text characters in each."""
    with files.open(path) as file:
        kind = _Elements if is_array(file, path) else Lines
        return text_by_field(first_lines(kind(file, whole_range(path), _LOOKED_AT, sound=False)))


def _from_field(pieces: Iterator[bytes], field: str) -> Iterator[bytes]:
    """Yield the pieces from the value of ``field`` on, which is a field of the object that they start with."""
    # Without possessive groups, which Python before 3.11.4 matches wrongly if they are nested.
    scalar = rb'(?:"[^"\\]*(?:\\.[^"\\]*)*"|[-+.\w]+)'
    begin = re.compile(
        rb'(?:\xef\xbb\xbf)?\s*\{(?:\s*"[^"\\]*"\s*:\s*'
        + scalar
        + rb'\s*,)*\s*"'
        + re.escape(field.encode())
        + rb'"\s*:\s*(?=\[)'
    )
    head = b""
    for piece in pieces:
        head += piece
        if match := begin.match(head):
            yield head[match.end() :]
            yield from pieces
            return
        if len(head) > _LOOKED_AT:
            break
    raise OSError(f"the file does not begin with an object that has a list in its field {field!r}")


class _Elements(Lines):
    """The elements of one array, found by their brackets without parsing, in bounded memory."""

    def __init__(self, file: BinaryIO, piece: Range, limit: int, sound: bool = True, field: str | None = None) -> None:
        super().__init__(file, piece, limit, sound)
        self._field = field
        if field is not None:
            self._chunks = _from_field(self._chunks, field)

    def __iter__(self) -> Iterator[list[Line]]:
        """Yield the elements chunk by chunk."""
        scan = _Scan(self._limit)
        try:
            for chunk in self._chunks:
                yield scan.feed(chunk)
                if scan.behind is not None:
                    if self._field is not None:
                        return
                    raise OSError(f"byte {scan.behind}: text after the JSON array")
            if scan.depth:
                raise EOFError("the file ends inside the JSON array")
        except STREAM_ERRORS as error:
            raise DamagedFile(error, scan.start, scan.held) from error


class _Scan:
    """State of the scan of an array."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.depth = 0  # of brackets: 0 outside the array, 1 between its elements
        self.start = 0  # offset of the current element
        self.behind: int | None = None  # offset of the first text after the array; None if only white space follows
        self._offset = 0  # of the chunk
        self._size = 0  # of the element so far
        self._pieces: list[bytes] = []  # of the element; only its beginning once it is too long
        self._in_string = self._escaped = self._ended = False

    @property
    def held(self) -> bytes:
        return b"".join(self._pieces)[:RAW_BYTES]

    def feed(self, chunk: bytes) -> list[Line]:
        """Return the elements that end in ``chunk``."""
        elements: list[Line] = []
        begin = place = 0  # of the element's part in this chunk; of the scan
        while place < len(chunk):
            if self._in_string:
                place = self._skip_string(chunk, place)
                continue
            if self._ended:
                self.behind = self._offset + place if chunk[place:].strip() else None
                break
            place = (_INNER if self.depth > 1 else _OUTER).match(chunk, place).end()  # type: ignore[union-attr]
            sign, place = chunk[place : place + 1], place + 1
            if sign == b'"':
                self._in_string = True
            elif sign in (b"[", b"{"):
                self.depth += 1
            elif sign in (b"]", b"}"):
                self.depth -= 1
            self._ended = self.depth == 0 and sign in (b"]", b"}")
            if self._ended or (self.depth == 1 and sign == b","):
                self._hold(chunk[begin : place - 1])
                elements += self._take()
            if self._ended or (self.depth == 1 and sign in (b"[", b",")):
                begin, self.start = place, self._offset + place
        if self.depth:
            self._hold(chunk[begin:])
        self._offset += len(chunk)
        return elements

    def _skip_string(self, chunk: bytes, place: int) -> int:
        """Return the position after the string, or after the part of it that is in ``chunk``."""
        place += self._escaped
        self._escaped = False
        place = _STRING.match(chunk, place).end()  # type: ignore[union-attr]
        if place < len(chunk):
            self._in_string, self._escaped = chunk[place : place + 1] != b'"', chunk[place : place + 1] != b'"'
        return place + 1

    def _hold(self, part: bytes) -> None:
        if not self._size:
            whole, part = part, part.lstrip()
            self.start += len(whole) - len(part)
        self._size += len(part)
        self._pieces.append(part)
        if self._size > self._limit:
            self._pieces = [self.held]

    def _take(self) -> list[Line]:
        data, size = b"".join(self._pieces), self._size
        self._pieces, self._size = [], 0
        if size > self._limit:
            return [Line(self.start, data, size)]
        data = data.rstrip()
        return [Line(self.start, data, len(data))] if data else []
