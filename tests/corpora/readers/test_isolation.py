"""Readers in processes of their own: crashes, kills and damage of what native code reads; the fuzzers of tables."""

from __future__ import annotations

import io
import json
import os
import random
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.errors import FarspanError
from corpora.readers import ReadOptions, isolation
from corpora.readers.selection import check_fields, plan_ranges, read_records
from corpora.storage import files
from tests.corpora.readers import read_all, reasons
from tests.corpora.readers.test_damage import damaged
from tests.corpora.readers.test_streams import InMemory

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


def parquet(**options):
    sink = io.BytesIO()
    pq.write_table(table().drop_columns("views"), sink, row_group_size=60, **options)
    return sink.getvalue()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
@pytest.mark.parametrize("call", ["plan", "fields", "read"])
def test_a_crash_is_a_dead_letter_and_the_next_file_is_read(monkeypatch, number, call):
    files = InMemory(arrow(pa.ipc.new_file))
    real = isolation._answer

    def crashing(name, *rest):
        answer = real(name, *rest)
        if name == call:
            process = isolation._PROCESSES._idle[-1]
            os.kill(process.pid, number)
        return answer

    (piece,) = plan_ranges("a.arrow", files, ReadOptions(), 1 << 30)
    with monkeypatch.context() as patch:
        patch.setattr(isolation, "_answer", crashing)
        if call == "plan":
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
    real = isolation._answer

    def killed(*request):
        os.kill(isolation._PROCESSES._idle[-1].pid, signal.SIGKILL)
        return real(*request)

    monkeypatch.setattr(isolation, "_answer", killed)
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


@pytest.mark.parametrize("kind", ["parquet", "file"])
def test_a_dictionary_that_stands_for_gigabytes_is_read_in_pieces(tmp_path, kind):
    """Were it expanded at once, this would take 6 GB; as it is, a piece at a time."""
    word = "xyz" * 500_000
    indices = pa.array([0] * 4096, pa.int32())
    bomb = pa.table({"text": pa.DictionaryArray.from_arrays(indices, pa.array([word]))})
    path = tmp_path / ("a.parquet" if kind == "parquet" else "a.arrow")
    if kind == "parquet":
        pq.write_table(bomb, path, compression="zstd")
    else:
        with pa.ipc.new_file(str(path), bomb.schema) as writer:
            writer.write_table(bomb)
    (piece,) = plan_ranges(str(path), files, ReadOptions(), 1 << 30)
    for number, block in enumerate(read_records(piece, files, ReadOptions())):
        assert set(block.texts) == {word}
        assert len(block.texts) <= 12
        if number == 3:
            break
    short = ReadOptions(max_record_bytes=1 << 20)
    blocks = read_records(piece, files, short)
    assert {reject.reason for reject in next(blocks).rejects} == {"too_long"}


def test_a_list_of_references_is_measured_before_it_is_expanded(tmp_path):
    word = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 1_000_000]))
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 3000], pa.int32()), word)
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(str(path), pa.schema([("text", lists.type)])) as writer:
        writer.write_table(pa.table({"text": lists}))
    block = read_all(path)
    assert [len(text) for text in block.texts] == [1_000_000]
    assert reasons(block) == [("1", "too_long")]


SOUND = {
    "file.arrow": lambda: arrow(pa.ipc.new_file),
    "packed.arrow": lambda: arrow(pa.ipc.new_file, "zstd"),
    "stream.arrow": lambda: arrow(pa.ipc.new_stream),
    "plain.parquet": lambda: parquet(use_dictionary=False, compression="none"),
    "words.parquet": parquet,
}


def fuzz(name, seeds):
    """Read damaged copies of a file; rows that are neither read nor rejected would raise."""
    data = SOUND[name]()
    rejected = read = 0
    for seed in seeds:
        draw = random.Random(seed)
        changed = bytearray(data)
        if seed % 2:
            changed = bytearray(damaged(data, draw))
        else:  # few bits, which leave the file's structure alone more often
            for _ in range(draw.randint(1, 5)):
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        field = draw.choice(["text", "words", "lists", "large", "views", "number"])
        block = read_all(name, ReadOptions(text_field=field), draw.choice([1, 3000, 1 << 30]), InMemory(bytes(changed)))
        json.dumps([block.texts, block.keys])
        rejected += bool(block.rejects)
        read += bool(block.texts)
    return read, rejected


@pytest.mark.parametrize("name", SOUND)
def test_damaged_tables_raise_nothing(name):
    _, rejected = fuzz(name, range(12))
    assert rejected > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SOUND if name.endswith("arrow")])
def test_nine_hundred_damaged_arrow_files_raise_nothing(name):
    """Of 900 files 625 have dead letters (457 of them end at the damage), 275 read as if sound; no process crashes."""
    started = isolation._PROCESSES._idle[-1:]
    read, rejected = fuzz(name, range(1000, 1300))
    assert not started or isolation._PROCESSES._idle[-1:] == started
    assert read > 100
    assert rejected > 100
