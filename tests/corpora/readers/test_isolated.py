"""The reading process, with its requests and answers in memory: the same as reading in the process of the test."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import asdict

import pyarrow as pa
import pytest

from corpora.readers import ReadOptions, isolated, selection
from corpora.readers.isolation import encode_block, receive, send
from corpora.readers.records import Range
from tests.corpora.readers import InMemory

TEXTS = [f"text {number}" for number in range(200)]


def arrow() -> bytes:
    sink = io.BytesIO()
    table = pa.table({"text": TEXTS})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=60)
    return sink.getvalue()


class Parent:
    """The process's output and input: whatever it asks of the file is there at its next read.

    Attributes:
        answers: (letter, body) of everything else that it sends.
    """

    def __init__(self, data: bytes, error: str = "") -> None:
        self.answers: list[tuple[bytes, bytes]] = []
        self._data, self._error = data, error
        self._sent, self._replies = b"", io.BytesIO()

    def write(self, data: bytes) -> None:
        self._sent += data

    def flush(self) -> None:
        letter, body = receive(io.BytesIO(self._sent))
        self._sent = b""
        if letter != b"R":
            self.answers.append((letter, body))
            return
        offset, count = struct.unpack("<QQ", body)
        self._replies = io.BytesIO()
        if self._error:
            send(self._replies, b"E", self._error.encode())
        else:
            send(self._replies, b"D", self._data[offset : offset + count])
        self._replies.seek(0)

    def read(self, size: int) -> bytes:
        return self._replies.read(size)


def answers(data: bytes, error: str = "", **request) -> list[tuple[bytes, bytes]]:
    parent = Parent(data, error)
    request = {"path": "a.arrow", "size": len(data), "options": asdict(ReadOptions()), **request}
    isolated._answer(json.loads(json.dumps(request)), parent, parent)
    return parent.answers


def test_plans_fields_and_blocks_are_those_of_this_process():
    data = arrow()
    file, options = InMemory(data), ReadOptions()
    cuts = selection.cuts("a.arrow", file, options, 1000)
    assert len(cuts) > 1
    assert answers(data, call="plan", target_bytes=1000) == [(b"V", json.dumps(cuts).encode())]
    fields = selection.fields("a.arrow", file, options)
    assert answers(data, call="fields") == [(b"V", json.dumps(fields).encode())]
    piece = Range("a.arrow", "arrow", 0, 4, len(data), len(data))
    *blocks, end = answers(data, call="read", piece=asdict(piece))
    assert blocks == [(b"B", encode_block(block)) for block in selection.blocks(piece, file, options)]
    assert end == (b"V", b"null")


def test_errors_are_answers():
    ((letter, body),) = answers(arrow(), "the disk is tired", call="plan", target_bytes=1)
    assert (letter, body) == (b"X", b"the disk is tired")
    options = asdict(ReadOptions(format="lines", id_field="key"))
    ((letter, body),) = answers(b"a\nb", path="a.txt", call="plan", target_bytes=1, options=options)
    assert letter == b"F"
    assert b"leave --id-field out" in body


def test_a_file_that_is_asked_for_ends_at_its_size():
    parent = Parent(b"0123456789")
    file = isolated._AskedFiles(parent, parent, 10).open("a")
    assert file.seek(-3, io.SEEK_END) == 7
    assert file.read() == b"789"
    assert file.read() == b""
    assert file.seek(4) == 4
    assert (file.read(2), file.tell()) == (b"45", 6)


@pytest.mark.parametrize(("limit", "expected"), [(-1, "half"), (1 << 20, 1 << 20)])
def test_memory_is_limited_to_half_and_never_raised(monkeypatch, limit, expected):
    set_to = []
    monkeypatch.setattr(isolated.resource, "getrlimit", lambda kind: (limit, limit))
    monkeypatch.setattr(isolated.resource, "setrlimit", lambda kind, limits: set_to.append(limits))
    isolated._limit_memory()
    half = isolated.os.sysconf("SC_PHYS_PAGES") * isolated.os.sysconf("SC_PAGE_SIZE") // 2
    assert set_to == [(half if expected == "half" else expected, limit)]
