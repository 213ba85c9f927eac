"""Arrow files and streams: cut, without an end mark, and with large batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from tests.corpora.readers import read_all, reasons
from tests.corpora.readers.test_columns import TEXTS, file_of, write


@pytest.mark.parametrize("kind", ["file", "packed-file", "stream"])
def test_every_complete_batch_of_a_cut_arrow_file_is_kept(tmp_path, kind):
    path = file_of(tmp_path, kind)
    write(pa.table({"text": TEXTS}), path, kind)
    whole = path.read_bytes()
    for keep in (0.1, 0.5, 0.97):
        path.write_bytes(whole[: int(len(whole) * keep)])
        for target_bytes in (1, 1 << 30):
            block = read_all(path, target_bytes=target_bytes)
            assert block.texts == TEXTS[: len(block.texts)]
            assert len(block.texts) % 60 == 0 or len(block.texts) == 500
            assert reasons(block) == [(str(len(block.texts)), "truncated_file")]
            assert block.lost == path.stat().st_size
        assert len(block.texts) >= (keep - 0.2) * 500


def test_a_stream_without_end_mark_is_whole(tmp_path):
    path = tmp_path / "a.arrow"
    write(pa.table({"text": TEXTS}), path, "stream")
    assert path.read_bytes().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    path.write_bytes(path.read_bytes()[:-8])
    block = read_all(path)
    assert (block.texts, block.rejects) == (TEXTS, [])


def test_large_batches_come_in_bounded_blocks(tmp_path):
    path = tmp_path / "a.arrow"
    write(pa.table({"text": ["y" * 100_000] * 300}), path, "stream", rows=300)
    (piece,) = plan_ranges(str(path), files, ReadOptions(), 1 << 30)
    blocks = list(read_records(piece, files, ReadOptions()))
    assert sum(len(block.texts) for block in blocks) == 300
    assert max(len(block.texts) for block in blocks) * 100_000 <= 17 << 20
