"""Data sets whose records are entries of a small file that names others."""

from __future__ import annotations

import gzip

import pytest

from corpora.readers.blocks import BlockBuilder
from corpora.readers.options import ReadOptions
from corpora.readers.records import BadRecord, Range
from corpora.readers.task_data.declaration import RawDocument, RawTask
from corpora.readers.task_data.index import ENTRIES_A_RANGE, indexed
from corpora.storage import files


def entries(data, place):
    if data.startswith(b"!"):
        raise BadRecord("broken_table", "no table")
    return [(name, name.upper()) for name in data.decode().split()]


def parse(entry, place):
    if entry == "BAD":
        raise BadRecord("missing_file", f"no {entry}")
    return RawTask([RawDocument(place.key, entry)], [])


DATA = indexed(entries, parse, r".*\.ids")


def read(path):
    found, rejects, pieces = [], [], DATA.plan(str(path), files, 1)
    for cut in pieces:
        block = BlockBuilder(str(path), ReadOptions())
        piece = Range(str(path), "", *cut, path.stat().st_size)
        positions = list(DATA.read(piece, files, block, lambda place, task, raw: found.extend(task.documents)))
        assert positions == sorted(positions)
        assert positions[-1] == piece.bytes
        rejects += [(reject.key, reject.reason) for reject in block.take(0).rejects]
    assert sum(cut.bytes for cut in pieces) == path.stat().st_size
    return found, rejects, len(pieces)


@pytest.mark.parametrize("count", [0, 1, ENTRIES_A_RANGE, ENTRIES_A_RANGE + 1, 3 * ENTRIES_A_RANGE])
def test_every_entry_is_read_once_in_order(tmp_path, count):
    path = tmp_path / "a.ids"
    path.write_text("".join(f"n{number}\n" for number in range(count)))
    found, rejects, ranges = read(path)
    assert found == [RawDocument(f"n{number}", f"N{number}") for number in range(count)]
    assert rejects == []
    assert ranges == max(1, -(-count // ENTRIES_A_RANGE))


def test_bad_entries_and_files_are_rejected(tmp_path):
    path = tmp_path / "a.ids"
    path.write_text("a bad b")
    assert read(path) == ([("a", "A"), ("b", "B")], [("bad", "missing_file")], 1)
    path.write_text("! a b")
    assert read(path) == ([], [("0", "broken_table")], 1)


def test_a_compressed_index_is_unpacked(tmp_path):
    path = tmp_path / "a.ids.gz"
    path.write_bytes(gzip.compress(b"a b"))
    assert read(path)[0] == [("a", "A"), ("b", "B")]
    path.write_bytes(path.read_bytes()[:-9])
    assert len(DATA.plan(str(path), files, 1)) == 1
