from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.storage.shards import map_shard, write_shard

SCHEMA = pa.schema([pa.field("tokens", pa.large_list(pa.uint16()))])


def rows_of(*sizes):
    return pa.record_batch([pa.array([list(range(size)) for size in sizes], SCHEMA.field(0).type)], schema=SCHEMA)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_batches_have_a_constant_number_of_rows_however_they_are_written(tmp_path, compression):
    paths = [str(tmp_path / name) for name in ("one", "many")]
    with write_shard(paths[0], SCHEMA, 4, compression) as (writer, info):
        writer.write(rows_of(*range(11)))
    with write_shard(paths[1], SCHEMA, 4, compression) as (writer, _):
        for size in range(11):
            writer.write(rows_of(size))
    reader = map_shard(paths[0])[1]
    assert [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)] == [4, 4, 3]
    data = [open(path, "rb").read() for path in paths]
    assert data[0] == data[1]
    assert (info[0].rows, info[0].tokens, info[0].bytes) == (11, sum(range(11)), len(data[0]))
    assert info[0].sha256 == hashlib.sha256(data[0]).hexdigest()


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError, match="stop"), write_shard(str(tmp_path / "s"), SCHEMA, 4) as (writer, _):
        writer.write(rows_of(1, 2, 3, 4, 5))
        raise RuntimeError("stop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda d: d[:-20], lambda d: b"not arrow at all", lambda d: b""])
def test_a_damaged_shard_is_named(tmp_path, damage):
    path = tmp_path / "shard.arrow"
    with write_shard(str(path), SCHEMA, 4) as (writer, _):
        writer.write(rows_of(1, 2, 3))
    path.write_bytes(damage(path.read_bytes()))
    for ahead in (True, False):
        with pytest.raises(FarspanError, match=r"shard\.arrow"):
            map_shard(str(path), ahead)


def test_a_shard_that_is_not_read_ahead_has_the_same_batches(tmp_path):
    path = str(tmp_path / "shard.arrow")
    with write_shard(path, SCHEMA, 4) as (writer, _):
        writer.write(rows_of(*range(11)))
    whole, parts = (map_shard(path, ahead)[1].read_all() for ahead in (True, False))
    assert whole.equals(parts)
