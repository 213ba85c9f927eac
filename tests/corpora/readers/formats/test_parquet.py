"""Parquet files: cuts at row groups, encodings that hold more than their bytes, and the bytes that damage costs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpora.readers import ReadOptions
from corpora.readers.selection import plan_ranges, read_records
from corpora.storage import files
from tests.corpora.readers import read_all, reasons

TEXTS = [f"text {number} " * 20 for number in range(90)]


@pytest.mark.parametrize("target_bytes", [1, 20_000, 1 << 30])
def test_a_file_is_cut_at_its_row_groups(tmp_path, target_bytes):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=10)
    metadata = pq.read_metadata(path)
    pieces = plan_ranges(path, files, ReadOptions(), target_bytes)
    assert [pieces[0].start, *(piece.stop for piece in pieces)] == [*(piece.start for piece in pieces), 9]
    for piece in pieces:
        groups = range(piece.start, piece.stop)
        assert piece.bytes == sum(metadata.row_group(index).total_byte_size for index in groups)
        assert piece.bytes <= target_bytes or len(groups) == 1
        texts = [text for block in read_records(piece, files, ReadOptions()) for text in block.texts]
        assert texts == TEXTS[piece.start * 10 : piece.stop * 10]


def test_texts_that_repeat_the_one_before_come_a_few_at_a_time(tmp_path):
    """Front-coded, each text takes a few bytes of the file and repeats a megabyte."""
    path = str(tmp_path / "a.parquet")
    table = pa.table({"text": [f"{'x' * 1_000_000} {number}" for number in range(40)]})
    pq.write_table(table, path, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    (piece,) = plan_ranges(path, files, ReadOptions(), 1 << 30)
    blocks = list(read_records(piece, files, ReadOptions()))
    assert [text for block in blocks for text in block.texts] == table["text"].to_pylist()
    assert max(len(block.texts) for block in blocks) <= 17


def test_damage_costs_at_most_its_row_group(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=30, use_dictionary=False, compression="zstd")
    column = pq.read_metadata(path).row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset : column.data_page_offset + 8] = bytes(8)  # of the page's header
    path.write_bytes(data)
    block = read_all(path, target_bytes=1)
    assert block.texts == TEXTS[:30] + TEXTS[60:]
    assert reasons(block) == [("30", "unreadable_file")]
    assert (block.damaged, block.lost) == (1, column.total_compressed_size)
