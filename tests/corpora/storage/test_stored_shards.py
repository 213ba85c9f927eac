"""Shards that are compared with their checksums before any row is read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from corpora.errors import FarspanError
from corpora.storage import stored_shards as module
from corpora.storage.manifest_file import read_manifest
from corpora.storage.stored_shards import stored_shards


@pytest.fixture
def shards(corpus, tmp_path, monkeypatch):
    """The shards of a copy of the corpus, none of which this process has seen."""
    monkeypatch.setattr(module, "_compared", set())
    folder = shutil.copytree(corpus, tmp_path / "copy")
    return stored_shards(str(folder), read_manifest(str(folder)))


def flip(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(data)


def test_every_row_is_there_in_order(corpus, shards):
    for shard, info in zip(shards, read_manifest(corpus).shards, strict=True):
        table = pa.Table.from_batches(shard.batches())
        assert len(table) == shard.rows == info.rows
        reader = pa.ipc.open_file(Path(corpus, "shards", info.name).read_bytes())
        assert table == reader.read_all()
        if reader.num_record_batches > 1:
            assert pa.Table.from_batches(shard.batches(1)) == table.slice(reader.get_batch(0).num_rows)


def test_other_bytes_are_refused_before_a_row_is_read(shards):
    flip(shards[1].path)
    assert len(list(shards[0].batches())) > 0
    with pytest.raises(FarspanError, match=rf"{shards[1].path}: not a readable shard \(sha256 \w+ where the manifest"):
        next(shards[1].batches())


def test_a_local_shard_is_compared_once_until_it_changes(shards, monkeypatch):
    compared = []
    real = module.StoredShard._compare
    monkeypatch.setattr(module.StoredShard, "_compare", lambda one, data: compared.append(one.path) or real(one, data))
    for _ in range(3):
        shards[0].map()
    assert compared == [shards[0].path]
    with pytest.raises(FarspanError, match="sha256"):
        replace(shards[0], sha256="0" * 64).map()
    flip(shards[0].path)
    with pytest.raises(FarspanError, match="sha256"):
        shards[0].map()
    Path(shards[0].path).unlink()
    with pytest.raises(FarspanError, match="No such file"):
        shards[0].map()
