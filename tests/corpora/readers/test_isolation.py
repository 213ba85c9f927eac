"""Readers in processes of their own: crashes, kills and damage of what native code reads; the fuzzers of tables."""

import io
import os
import signal

import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions, isolation
from corpora.readers.selection import check_fields, plan_ranges, read_records
from tests.corpora.readers import InMemory, read_all, reasons

TEXTS = [f"text {number} \u00e9" * (number % 9 + 1) for number in range(200)]


def table():
    words = pa.array(TEXTS)
    return pa.table(
        {
            "text": words,
            "words": pa.array([f"w{number % 7}" for number in range(200)]).dictionary_encode(),
            "lists": pa.array([[text, None, text[:5]] for text in TEXTS]),
            "large": words.cast(pa.large_string()),
            "views": words.cast(pa.string_view()),
            "number": pa.array(range(200)),
        }
    )


def arrow(new, codec=None):
    sink = io.BytesIO()
    with new(sink, table().schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table(), max_chunksize=60)
    return sink.getvalue()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
@pytest.mark.parametrize("call", ["cuts", "fields", "blocks"])
def test_a_crash_is_a_dead_letter_and_the_next_file_is_read(monkeypatch, number, call):
    files = InMemory(arrow(pa.ipc.new_file))
    real = isolation.call

    def crashing(function, *rest):
        if function.__name__ == call:
            os.kill(isolation._idle[-1].process.pid, number)
        return real(function, *rest)

    (piece,) = plan_ranges("a.arrow", files, ReadOptions(), 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(isolation, "call", crashing)
        if call == "cuts":
            assert [(cut.start, cut.stop) for cut in plan_ranges("a.arrow", files, ReadOptions(), 100)] == [(0, 1)]
        elif call == "fields":
            check_fields("a.arrow", files, ReadOptions(text_field="nothing"))
        else:
            (block,) = read_records(piece, files, ReadOptions())
            assert (block.texts, block.damaged, block.lost) == ([], 1, piece.bytes)
            assert reasons(block) == [("0", "crashed_reader")]
            assert number.name in block.rejects[0].detail
    assert read_all("a.arrow", files=files).texts == TEXTS


def test_a_kill_from_outside_is_no_fault_of_the_file(monkeypatch):
    files = InMemory(arrow(pa.ipc.new_file))
    (piece,) = plan_ranges("a.arrow", files, ReadOptions(), 1 << 30)
    real = isolation.call

    def killed(*request):
        os.kill(isolation._idle[-1].process.pid, signal.SIGKILL)
        return real(*request)

    monkeypatch.setattr(isolation, "call", killed)
    with pytest.raises(FarspanError, match=r"a.arrow: its reader was killed \(SIGKILL\)"):
        list(read_records(piece, files, ReadOptions()))


def test_a_reader_that_is_left_early_leaves_nothing_behind():
    files = InMemory(arrow(pa.ipc.new_file))
    (piece,) = plan_ranges("a.arrow", files, ReadOptions(), 1 << 30)
    blocks = read_records(piece, files, ReadOptions())
    next(blocks)
    blocks.close()
    assert read_all("a.arrow", files=files).texts == TEXTS


def test_an_error_of_the_file_system_reaches_the_reader():
    class Broken(io.RawIOBase):
        def seek(self, *_):
            return 0

        def readable(self):
            return True

        def seekable(self):
            return True

        def readinto(self, buffer):
            raise OSError("the disk is tired")

    files = InMemory(stream=lambda: io.BufferedReader(Broken()), size=1000)
    (reject,) = read_all("a.parquet", files=files).rejects
    assert reject.reason == "unreadable_file"
    assert "the disk is tired" in reject.detail


@pytest.mark.parametrize(("limit", "expected"), [(-1, "half"), (1 << 20, 1 << 20)])
def test_memory_is_limited_to_half_and_never_raised(monkeypatch, limit, expected):
    set_to = []
    monkeypatch.setattr(isolation.resource, "getrlimit", lambda kind: (limit, limit))
    monkeypatch.setattr(isolation.resource, "setrlimit", lambda kind, limits: set_to.append(limits))
    isolation._limit_memory()
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert set_to == [(half if expected == "half" else expected, limit)]
