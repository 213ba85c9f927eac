"""Intermediate files: what is written is read back, damage is noticed, labels partition rows."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from pipelines.shuffle.intermediate import checksum, partition, read_array, read_batch, write_array, write_batches


@given(st.lists(st.integers(0, 6), max_size=30))
def test_partition_lists_the_rows_of_each_label(labels):
    found = [rows.tolist() for rows in partition(np.array(labels, np.int64), 7)]
    assert found == [[row for row, label in enumerate(labels) if label == number] for number in range(7)]


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    columns = [numbers, [str(n) for n in numbers], [list(range(n % 4)) for n in numbers]]
    kinds = [pa.int64(), pa.string(), pa.list_(pa.int32())]
    return pa.record_batch([pa.array(c, k) for c, k in zip(columns, kinds, strict=True)], names=["n", "s", "l"])


@pytest.fixture
def path(tmp_path):
    name = str(tmp_path / "work" / "a.arrow")
    write_batches(name, batch(0, 1).schema, (batch(first, 5) for first in (0, 5, 10)))
    return name


def test_batches_are_read_one_by_one(path):
    assert [read_batch(path, index) for index in range(3)] == [batch(first, 5) for first in (0, 5, 10)]


def test_a_flipped_bit_is_noticed_in_its_batch_alone(path):
    data = bytearray(open(path, "rb").read())
    data[data.find(np.array([5, 6, 7]).tobytes()) + 8] ^= 1  # column n of batch 1
    open(path, "wb").write(data)
    assert read_batch(path, 0) == batch(0, 5)
    with pytest.raises(FarspanError, match=r"record batch 1 has checksum .* delete the job's output folder"):
        read_batch(path, 1)


def test_a_missing_batch_or_file_is_named(path):
    with pytest.raises(FarspanError, match="record batch 3"):
        read_batch(path, 3)


def test_checksums_do_not_depend_on_the_buffers():
    assert checksum(batch(0, 10).slice(3, 4)) == checksum(batch(3, 4))
    assert checksum(batch(0, 4)) != checksum(batch(1, 4))


@pytest.mark.parametrize("mapped", [False, True])
def test_arrays_are_read_back(tmp_path, mapped):
    path = str(tmp_path / "a.npy")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_array(path, values)
    assert np.array_equal(read_array(path, mapped), values)
    assert np.array_equal(np.load(path), values)


def test_a_damaged_or_missing_array_is_refused(tmp_path):
    path = str(tmp_path / "a.npy")
    write_array(path, np.arange(5))
    data = bytearray(open(path, "rb").read())
    data[-40] ^= 1
    open(path, "wb").write(data)
    with pytest.raises(FarspanError, match="its checksum is not that of what was written"):
        read_array(path)
    os.remove(path)
    with pytest.raises(FarspanError, match="No such file"):
        read_array(path)
