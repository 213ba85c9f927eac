"""Arrow IPC files and streams (Feather, Hugging Face ``datasets``), cut at record batches.

A file is a stream between two marks, so both are read in the same way: first only the message headers, then only the
requested batches. Format: https://arrow.apache.org/docs/format/Columnar.html, "Encapsulated message format", and the
flatbuffers schema Message.fbs there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from corpora.readers import columns
from corpora.readers.blocks import BlockBuilder, Reader
from corpora.readers.records import Cut, DamagedFile, Range, group
from corpora.storage import files

_MAGIC = b"ARROW1"
_CONTINUATION = b"\xff\xff\xff\xff"
_BATCH = 3  # MessageHeader.RecordBatch


class _Message(NamedTuple):
    """Position of a message in the file in bytes, and its rows if it is a record batch."""

    start: int
    stop: int
    rows: int


class _Layout(NamedTuple):
    """Contents of a file according to its message headers."""

    batches: list[tuple[_Message, int]]  # complete record batches, each with the number of context messages before it
    context: list[_Message]  # schema and dictionaries, which are needed to read a batch
    damage: Exception | None  # why the file ends early


def plan(path: str, target_bytes: int) -> list[Cut]:
    """Split a file between record batches."""
    with files.open(path) as file:
        layout = _walk(file, files.size(path))
    return group([batch.stop - batch.start for batch, _ in layout.batches], target_bytes)


def read(piece: Range, block: BlockBuilder) -> Iterator[int]:
    """Read each row as a record."""
    with files.open(piece.path) as file:
        layout = _walk(file, files.size(piece.path))
        schema = _schema(file, layout)
        names = columns.wanted_columns(schema, block.options)
        options = pa.ipc.IpcReadOptions(included_fields=[schema.names.index(name) for name in names])
        row = sum(batch.rows for batch, _ in layout.batches[: piece.start])
        position = 0
        for message, known in layout.batches[piece.start : piece.stop]:
            try:
                data = b"".join(_bytes(file, part) for part in [*layout.context[:known], message])
                batch = pa.ipc.open_stream(data, options=options).read_next_batch().select(names)
                columns.check_batch(batch)
            except (OSError, pa.ArrowException) as error:
                raise DamagedFile(error, row) from error
            size = message.stop - message.start
            for done in columns.add_rows(block, batch, row, schema):
                yield position + size * done // message.rows
            row += message.rows
            position += size
        if layout.damage and piece.stop == len(layout.batches):
            raise DamagedFile(layout.damage, row)


def fields(path: str) -> dict[str, int]:
    """Map the columns of the file to the text in them, by ``columns.fields``."""
    with files.open(path) as file:
        return columns.fields(_schema(file, _walk(file, files.size(path))))


def _schema(file: BinaryIO, layout: _Layout) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(_bytes(file, layout.context[0])))


def _bytes(file: BinaryIO, message: _Message) -> bytes:
    file.seek(message.start)
    return file.read(message.stop - message.start)


def _walk(file: BinaryIO, size: int) -> _Layout:
    """Read the headers of all messages of a file of ``size`` bytes."""
    is_file = file.read(len(_MAGIC)) == _MAGIC
    place = 8 if is_file else 0
    batches: list[tuple[_Message, int]] = []
    context: list[_Message] = []
    damage: Exception | None = None
    while damage is None:
        file.seek(place)
        prefix = file.read(8)
        if not prefix and not is_file:
            break  # a stream may end without a mark
        if len(prefix) == 8 and prefix[:4] != _CONTINUATION:
            damage = pa.ArrowInvalid(f"no Arrow message at byte {place}")
            break
        length = struct.unpack("<i", prefix[4:])[0] if len(prefix) == 8 else -1
        if length == 0:
            break
        metadata = file.read(max(0, length))
        if len(prefix) < 8 or len(metadata) < length:
            damage = EOFError(f"the file ends inside the Arrow message at byte {place}")
            break
        try:
            kind, rows, body = _header(metadata)
        except struct.error:
            kind = rows = body = -1
        message = _Message(place, place + 8 + length + body, rows)
        if min(length, rows, body) < 0:
            damage = pa.ArrowInvalid(f"no Arrow message at byte {place}")
        elif message.stop > size:
            damage = EOFError(f"the file ends inside the Arrow message at byte {place}")
        elif kind == _BATCH:
            batches.append((message, len(context)))
        else:
            context.append(message)
        place = message.stop
    if not context:
        raise pa.ArrowInvalid("not an Arrow file or stream")
    if is_file and damage is None:
        file.seek(size - len(_MAGIC))
        if file.read() != _MAGIC:
            damage = EOFError("the file ends before the footer of an Arrow file")
    return _Layout(batches, context, damage)


def _header(metadata: bytes) -> tuple[int, int, int]:
    """Return three fields of Message.fbs: kind of the message, rows of a record batch (else 0), bytes of the body."""
    message = struct.unpack_from("<I", metadata)[0]
    kind = _field(metadata, message, 1, "<B")
    table = _slot(metadata, message, 2)
    rows = _field(metadata, table + struct.unpack_from("<I", metadata, table)[0], 0, "<q") if kind == _BATCH else 0
    return kind, rows, _field(metadata, message, 3, "<q")


def _field(data: bytes, table: int, number: int, kind: str) -> int:
    slot = _slot(data, table, number)
    return struct.unpack_from(kind, data, slot)[0] if slot else 0


def _slot(data: bytes, table: int, number: int) -> int:
    """Return the position of field ``number`` of a flatbuffers table; 0 if it is absent and so has the value 0."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


READER = Reader(plan, read, fields, suffixes=(".arrow", ".feather"), native=True)
