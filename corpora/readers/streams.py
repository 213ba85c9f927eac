"""Byte streams: decompression that detects truncated files, and reading of lines in bounded memory."""

from __future__ import annotations

import bz2
import codecs
import io
import json
import lzma
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple, cast

import zstandard

from corpora.readers.blocks import BlockBuilder
from corpora.readers.records import BLOCK_BYTES, RAW_BYTES, BadRecord, Cut, DamagedFile, DamagedStream, Range
from corpora.storage import files

STREAM_ERRORS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
_COMPRESSIONS = {"gz": "gz", "tgz": "gz", "bz2": "bz2", "xz": "xz", "zst": "zst"}
_CHUNK = 1 << 20
_LOOKED_AT = 100
# bytes of input per call: gzip and zstd decompress all of it at once, up to 1,000 and 30,000 times its size; bz2 and xz
# take a limit on their output
_PIECES = {"gz": 8 << 10, "bz2": _CHUNK, "xz": _CHUNK, "zst": 512}
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gz": lambda: zlib.decompressobj(zlib.MAX_WBITS + 16),
    "bz2": bz2.BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
    "zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
}


def compression(path: str) -> str | None:
    """Return ``gz``, ``bz2``, ``xz``, ``zst`` or None, by the file's name."""
    return _COMPRESSIONS.get(path.rpartition(".")[2].lower())


def chunks(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Yield the decompressed bytes of ``file`` in pieces of a few MiB at most."""
    kind = compression(path)
    if kind is None:
        yield from iter(partial(_read, file), b"")
    else:
        yield from (chunk for chunk, _ in _unpack(file, kind) if chunk)


def sound_chunks(file: BinaryIO, path: str) -> Iterator[bytes]:
    """Do the same as ``chunks`` for a file at its beginning, but leave out data that fails a checksum.

    A checksum follows the member, frame or stream that it covers, and does not locate the damage in it. So a compressed
    file is unpacked twice, first to find how much of it is valid.
    """
    kind = compression(path)
    left, damage = _sound_bytes(file, kind) if kind else (0, None)
    if damage is None:
        yield from chunks(file, path)
        return
    for chunk in chunks(file, path) if left else ():
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            break
    raise damage


def _sound_bytes(file: BinaryIO, kind: str) -> tuple[int, DamagedStream | None]:
    """Unpack a whole file and rewind it; return the decompressed bytes before a damaged member, and the error.

    A file that is only truncated is valid up to its end.
    """
    whole = seen = 0  # decompressed bytes up to the end of the last whole member, and altogether
    behind = 0  # end of the last whole member in the file
    try:
        for chunk, end in _unpack(file, kind):
            seen += len(chunk)
            if end is not None:
                whole, behind = seen, end
    except EOFError:
        return seen, None
    except STREAM_ERRORS as error:
        size = file.seek(0, io.SEEK_END)
        reason = f"{error}; everything from byte {behind:,} of the file on is discarded"
        return whole, DamagedStream(reason, size - behind)
    finally:
        file.seek(0)
    return seen, None


def _unpack(file: BinaryIO, kind: str) -> Iterator[tuple[bytes, int | None]]:
    """Yield pieces of decompressed data, each with None, or with the file position where its member ends."""
    member: Any = None
    members = place = 0
    while block := _read(file):
        for start in range(0, len(block), _PIECES[kind]):
            data = block[start : start + _PIECES[kind]]
            place += len(data)
            while data:
                if member is None:
                    data = data.lstrip(b"\0") if members else data  # between members, zeros are padding
                    if not data:
                        break
                    member, members = _DECOMPRESSORS[kind](), members + 1
                yield from _feed(member, data, kind)
                data = b""
                if member.eof:
                    data, member = member.unused_data, None
                    yield b"", place - len(data)
    if member is not None:
        raise EOFError(f"the file ends inside its {kind} data")
    if not members:
        raise EOFError(f"the file is empty, so it holds no {kind} data")


def _read(file: BinaryIO) -> bytes:
    # read1, because read discards data if it meets damage
    return cast(Any, file).read1(_CHUNK)


def _feed(member: Any, data: bytes, kind: str) -> Iterator[tuple[bytes, None]]:
    """Decompress a piece of input, in pieces of a few MiB."""
    if kind in ("bz2", "xz"):
        yield member.decompress(data, _CHUNK), None
        while not (member.eof or member.needs_input):
            yield member.decompress(b"", _CHUNK), None
    else:
        chunk = member.decompress(data)
        for start in range(0, len(chunk), _CHUNK):
            yield chunk[start : start + _CHUNK], None


def whole_file(path: str, limit: int = sys.maxsize) -> bytes:
    """Read a whole file, decompressed, or somewhat more than ``limit`` bytes of a larger one."""
    pieces: list[bytes] = []
    size = 0
    with files.open(path) as file:
        try:
            for chunk in chunks(file, path):
                pieces.append(chunk)
                size += len(chunk)
                if size > limit:
                    break
        except STREAM_ERRORS as error:
            raise DamagedFile(error, 0, b"".join(pieces)[:RAW_BYTES]) from error
    return b"".join(pieces)


class Line(NamedTuple):
    """A line without its newline."""

    offset: int  # in the decompressed stream
    data: bytes  # the line, or the beginning of one above the limit
    size: int  # bytes of the whole line

    def check_size(self, limit: int) -> None:
        if self.size > limit:
            raise BadRecord("too_long", f"{self.size:,} bytes, more than --max-record-bytes {limit:,}")

    def text(self) -> str:
        """Decode strict UTF-8, without a byte order mark at the stream's beginning."""
        data = self.data.removeprefix(codecs.BOM_UTF8) if self.offset == 0 else self.data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            place = self.offset + len(self.data) - len(data) + error.start
            raise BadRecord("invalid_utf8", f"byte {place} of the file: {error.reason}") from error

    def json(self) -> Any:
        """Parse a JSON value; ``BadRecord`` names the fault and its position.

        The standard library parses 450 MB per second, 20 times the rate of tokenising and splitting sentences, so no
        faster parser is used.
        """
        text = self.text()
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadRecord("broken_json", str(error)) from error

    def record(self) -> dict[str, Any]:
        """Parse a JSON object."""
        return as_object(self.json())


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON value that has to be an object."""
    if not isinstance(value, dict):
        raise BadRecord("not_an_object", f"a JSON value of type {type(value).__name__}")
    return value


def text_by_field(lines: Iterable[Line]) -> dict[str, int]:
    """Map the fields of the JSON objects among ``lines`` to the text characters in each."""
    fields: dict[str, int] = {}
    for line in lines:
        try:
            record = line.record()
        except BadRecord:
            continue
        for name, value in record.items():
            fields[name] = fields.get(name, 0) + (len(value) if isinstance(value, str) else 0)
    return fields


class Lines:
    """The lines that start inside a range, read in bounded memory.

    A range may start inside a line, which then belongs to the range before. For a line above ``limit`` bytes, only the
    beginning and the size are kept. Unless ``sound`` is False, data of a compressed file that fails its checksum is
    left out, which requires reading the file twice.
    """

    def __init__(self, file: BinaryIO, piece: Range, limit: int, sound: bool = True) -> None:
        self._file, self._piece, self._limit = file, piece, limit
        self._chunks = (sound_chunks if sound else chunks)(file, piece.path)
        # a compressed stream is one range: it starts at its first line and has no stop
        plain = compression(piece.path) is None
        self._start, self._stop = (piece.start, piece.stop) if plain else (0, sys.maxsize)

    @property
    def position(self) -> int:
        """Bytes of the range read so far."""
        return max(0, min(self._file.tell() - self._start, self._piece.bytes))

    def __iter__(self) -> Iterator[list[Line]]:
        """Yield the lines chunk by chunk."""
        offset, size = self._first_line(), 0  # of the line being read
        held: list[bytes] = []  # its pieces; only its beginning once it is too long
        while offset < self._stop:
            try:
                chunk = next(self._chunks, b"")
            except STREAM_ERRORS as error:
                raise DamagedFile(error, offset, b"".join(held)[:RAW_BYTES]) from error
            if not chunk:
                if size:
                    yield [Line(offset, b"".join(held), size)]
                return
            *ends, rest = chunk.split(b"\n")
            lines = []
            for data in ends:
                size += len(data)
                if held:
                    data = b"".join([*held, data])
                    held = []
                lines.append(Line(offset, data if size <= self._limit else data[:RAW_BYTES], size))
                offset, size = offset + size + 1, 0
                if offset >= self._stop:
                    break
            yield lines
            held.append(rest)
            size += len(rest)
            if size > self._limit:
                held = [b"".join(held)[:RAW_BYTES]]

    def _first_line(self) -> int:
        """Seek the first line that starts in the range; return its offset, at least ``stop`` if there is none."""
        if self._start == 0:
            return 0
        # a byte early: if that byte is a newline, a line starts at the range's first byte
        at = self._start - 1
        self._file.seek(at)
        while at < self._stop and (chunk := self._file.read(_CHUNK >> 4)):
            newline = chunk.find(b"\n")
            if newline >= 0:
                self._file.seek(at + newline + 1)
                return at + newline + 1
            at += len(chunk)
        return self._stop


def whole_range(path: str) -> Range:
    """Return the range that is a whole file."""
    size = files.size(path)
    return Range(path, "", 0, size, size, size)


def first_lines(lines: Lines) -> list[Line]:
    """Return at most 100 lines that are not blank, from about the first ``BLOCK_BYTES``."""
    first: list[Line] = []
    try:
        for chunk in lines:
            first += [line for line in chunk if line.data.strip()]
            if len(first) >= _LOOKED_AT or sum(line.size for line in first) >= BLOCK_BYTES:
                break
    except DamagedFile:
        pass  # reading the file reports it
    return first[:_LOOKED_AT]


def read_lines(piece: Range, block: BlockBuilder, add: Callable[[BlockBuilder, Line], None]) -> Iterator[int]:
    """Pass every line of a range to ``add``, except blank ones, which are not records, and too long ones."""
    with files.open(piece.path) as file:
        yield from add_lines(Lines(file, piece, block.options.max_record_bytes), block, add)


def add_lines(lines: Lines, block: BlockBuilder, add: Callable[[BlockBuilder, Line], None]) -> Iterator[int]:
    """Do the same as ``read_lines`` for the lines of an open stream."""
    for chunk in lines:
        for line in chunk:
            if not line.data or line.data.isspace():
                continue
            with block.reject_if_bad(line.offset, line.data):
                line.check_size(block.options.max_record_bytes)
                add(block, line)
        yield lines.position


def plan_lines(path: str, target_bytes: int) -> list[Cut]:
    """Split a plain file into equal ranges; a compressed file is one range, because it cannot be split."""
    size = files.size(path)
    if compression(path):
        return [Cut(0, 1, size)]
    count = max(1, -(-size // target_bytes))
    if count > 1:
        with files.open(path) as file:  # an unreadable file is one reject, so one range
            file.read(1)
    edges = [size * index // count for index in range(count + 1)]
    return [Cut(start, stop, stop - start) for start, stop in pairwise(edges)]
