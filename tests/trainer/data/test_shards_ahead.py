"""Training from a store: the batches of a local run, each shard fetched once an epoch, ahead of its steps."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.copies.shard_cache import ShardCache, _entries
from tests.object_store import upload
from tests.trainer.masked_folders import SPAN, make_folders
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig
from trainer.data.loader import Loader
from trainer.data.shards_ahead import ShardsAhead
from trainer.run.sources import open_stages

SHARDS, STEPS, BATCH = 12, 40, 6


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A corpus of 54 rows and a mask set of two draws."""
    return make_folders(tmp_path_factory.mktemp("local"), draws=2, shards=SHARDS)


@pytest.fixture
def remote(folders, tmp_path, monkeypatch):
    """The two in a store, and the paths of the shards that were fetched from there."""
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    fsspec.filesystem("memory").store.clear()
    for folder in folders:
        upload(folder, f"memory://{os.path.basename(folder)}")
    fetched, opened = [], files.open

    def counted(path):
        if "://" in path and path.endswith(".arrow"):
            fetched.append(path.removeprefix("memory://"))
        return opened(path)

    monkeypatch.setattr(files, "open", counted)
    return fetched


def open_loader(corpus, masks, cache=None, shuffle_shards=2, rank=0, world_size=1, steps=STEPS):
    objective = {"masks": masks} if masks else {"objective": SPAN}
    data = DataConfig(corpus=corpus, source_length=128, target_length=64, shuffle_shards=shuffle_shards, **objective)
    (stage,) = toy_recipe("unused", steps=steps, batch_size=BATCH, micro_batch_size=BATCH // 2).curriculum
    stages = [replace(stage, data=data)]
    mixtures = open_stages(stages, cache=cache)
    return Loader(stages, mixtures, 1, rank, world_size, ShardsAhead.of(stages, mixtures, 1))


def cache_bytes(cache: str) -> int:
    with ShardCache(0, cache)._locked_listing():
        return sum(size for _, size, _ in _entries(cache))


def same(ours, theirs) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for one, other in zip(ours, theirs, strict=True)
        for name in ("samples", "sequence_ids", "source_ids", "labels")
    )


def bytes_of(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder, "shards").iterdir())


@pytest.mark.parametrize("stored", [True, False])
def test_batches_are_those_of_local_data_though_the_cache_holds_a_part_of_it(folders, remote, tmp_path, stored):
    corpus, masks = folders if stored else (folders[0], None)
    size = (bytes_of(corpus) + (bytes_of(masks) / 2 if masks else 0)) * 0.8
    local = open_loader(corpus, masks)
    ours = open_loader("memory://corpus", masks and "memory://masks", ShardCache(int(size)))
    assert local.ahead is None
    for step in range(STEPS):  # more than four epochs
        assert same(ours.step(step), local.step(step)), step
        assert cache_bytes(str(tmp_path / "cache" / "shards")) <= size
    ours.ahead.close()
    if masks:
        draws = {number for number in range(2 * SHARDS) if any(f"part-{number:05d}" in path for path in remote)}
        assert draws == set(range(2 * SHARDS))


def test_each_shard_is_fetched_once_an_epoch_and_a_resumed_run_is_warm(folders, remote):
    cache = ShardCache(int(bytes_of(folders[0]) * 0.8))
    loader = open_loader("memory://corpus", None, cache, steps=9)
    remote.clear()  # those that opening has looked at
    for step in range(9):  # one epoch
        loader.step(step)
    loader.ahead.close()
    assert len(remote) == len(set(remote)) <= SHARDS
    before = len(remote)
    resumed = open_loader("memory://corpus", None, ShardCache(cache.size), steps=9)
    assert same(resumed.step(8), open_loader(folders[0], None, steps=9).step(8))
    resumed.ahead.close()
    assert len(remote) - before <= 4  # rows from all over the corpus that opening looks at


def test_ranks_of_a_machine_share_the_copies(folders, remote):
    local = open_loader(*folders)
    ranks = [
        open_loader("memory://corpus", "memory://masks", ShardCache(1 << 30), rank=rank, world_size=2)
        for rank in range(2)
    ]
    for step in range(9):
        assert same([batch for rank in ranks for batch in rank.step(step)], local.step(step))
    for rank in ranks:
        rank.ahead.close()
    assert len(remote) == len(set(remote))


def test_shards_are_fetched_before_their_step(folders, remote):
    loader = open_loader("memory://corpus", None, ShardCache(1 << 30), steps=9)
    loader.step(0)
    deadline = time.monotonic() + 30
    while len(set(remote)) < SHARDS and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(set(remote)) == SHARDS
    loader.ahead.close()


def test_a_global_order_needs_a_cache_for_everything(folders, remote):
    local = open_loader(*folders, shuffle_shards=0)
    size = int((bytes_of(folders[0]) + bytes_of(folders[1])) / 0.75) + 1
    ours = open_loader("memory://corpus", "memory://masks", ShardCache(size), shuffle_shards=0)
    assert same(ours.step(3), local.step(3))
    ours.ahead.close()
    with pytest.raises(FarspanError, match=r"loading.cache_gib .* data.shuffle_shards 0 .* set it to a few shards"):
        open_loader("memory://corpus", "memory://masks", ShardCache(size // 2), shuffle_shards=0)
    with pytest.raises(FarspanError, match=r"data.shuffle_shards 8 the remote data needs .*; lower it, or raise"):
        open_loader("memory://corpus", "memory://masks", ShardCache(size // 4), shuffle_shards=8)


def test_what_is_wrong_with_a_shard_is_raised_at_its_step(folders, remote):
    loader = open_loader("memory://corpus", None, ShardCache(1 << 30), steps=9)
    store = fsspec.filesystem("memory").store
    for name in [name for name in store if name.endswith(".arrow") and "/corpus/" in name]:
        files.write_bytes(f"memory:/{name}", b"damage")
    with pytest.raises(FarspanError, match=r"memory://corpus/shards/part-.*: 6 bytes with sha256"):
        for step in range(9):
            loader.step(step)
    loader.ahead.close()
