"""Readers in processes of their own: crashes, kills and damage of what native code reads; the fuzzers of tables."""

import io
import os
import resource
import signal
from typing import Any

import pyarrow as pa
import pytest

from corpora.errors import FarspanError, StoreError
from corpora.readers import ReadOptions, isolation
from corpora.readers.selection import check_fields, plan_ranges, read_records
from corpora.storage import files
from corpora.storage.shards import map_shard
from tests.corpora.readers import read_all, reasons

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


@pytest.fixture
def path(tmp_path):
    """A sound file, which a process of its own reads."""
    (tmp_path / "a.arrow").write_bytes(arrow(pa.ipc.new_file))
    return str(tmp_path / "a.arrow")


@pytest.mark.parametrize(
    ("call", "number"),
    [
        pytest.param(call, number, marks=() if call == "read_blocks" or number == usual else pytest.mark.slow)
        for call, usual in (("cut_file", signal.SIGSEGV), ("list_field_names", signal.SIGABRT), ("read_blocks", None))
        for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
    ],
)
def test_a_crash_is_a_dead_letter_and_the_next_file_is_read(monkeypatch, path, call, number):
    real = isolation.call

    def crashing(function, *rest):
        if function.__name__ == call:
            os.kill(isolation._idle[-1].process.pid, number)
        return real(function, *rest)

    (piece,) = plan_ranges(path, ReadOptions(), 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(isolation, "call", crashing)
        if call == "cut_file":
            assert [(cut.start, cut.stop) for cut in plan_ranges(path, ReadOptions(), 100)] == [(0, 1)]
        elif call == "list_field_names":
            check_fields(path, ReadOptions(text_field="nothing"))
        else:
            (block,) = read_records(piece, ReadOptions())
            assert (block.texts, block.damaged, block.lost) == ([], 1, piece.bytes)
            assert reasons(block) == [("0", "crashed_reader")]
            assert number.name in block.rejects[0].detail
    assert read_all(path).texts == TEXTS


def test_a_kill_from_outside_is_no_fault_of_the_file(monkeypatch, path):
    (piece,) = plan_ranges(path, ReadOptions(), 1 << 30)
    real = isolation.call

    def killed(*request):
        os.kill(isolation._idle[-1].process.pid, signal.SIGKILL)
        return real(*request)

    monkeypatch.setattr(isolation, "call", killed)
    with pytest.raises(FarspanError, match=r"a.arrow: its reader was killed \(SIGKILL\)"):
        list(read_records(piece, ReadOptions()))


def test_a_reader_that_is_left_early_leaves_nothing_behind(path):
    (piece,) = plan_ranges(path, ReadOptions(), 1 << 30)
    blocks: Any = read_records(piece, ReadOptions())
    next(blocks)
    blocks.close()
    assert read_all(path).texts == TEXTS


def test_errors_of_the_process_are_raised_here_and_it_serves_on(tmp_path):
    for function, kind in ((os.listdir, OSError), (map_shard, StoreError)):
        with pytest.raises(kind, match=r"gone.*No such file|No such file.*gone"):
            list(isolation.call(function, str(tmp_path / "gone")))
    process = isolation._idle[-1]
    (tmp_path / "here").touch()
    assert list(isolation.call(os.listdir, str(tmp_path))) == [["here"]]
    assert isolation._idle[-1] == process


def test_a_process_reads_from_the_folder_and_with_the_settings_of_its_parent(path, bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_all("a.arrow").texts == TEXTS
    files.write_bytes(f"{bucket}/a.arrow", arrow(pa.ipc.new_file))
    assert read_all(f"{bucket}/a.arrow").texts == TEXTS


@pytest.mark.parametrize(("limit", "expected"), [(-1, "half"), (1 << 20, 1 << 20)])
def test_memory_is_limited_to_half_and_never_raised(monkeypatch, limit, expected):
    set_to = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: set_to.append(limits))
    isolation._limit_memory()
    half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    assert set_to == [(half if expected == "half" else expected, limit)]
