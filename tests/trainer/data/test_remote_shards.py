"""Training from a store: shards fetched ahead of their steps, or held for the batches of a dataset."""

import os
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage import files
from corpora.storage.shard_cache import ShardCache, _entries
from tests.artefacts import make_corpus, make_documents, make_pairs
from tests.object_store import upload
from tests.trainer.joint_parts import data_of, make_generator
from tests.trainer.masked_folders import SPAN, make_folders
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, TaskConfig
from trainer.data.curriculum import Stage
from trainer.data.generator_masks import open_generator_masked
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture, Part
from trainer.data.remote_shards import MappedShards, ShardsAhead
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
    stages = stages_on(data, steps, BATCH)
    mixtures = open_stages(stages, cache=cache)
    return Loader(stages, mixtures, 1, rank, world_size, ShardsAhead.of(stages, mixtures, 1))


def stages_on(data: DataConfig, steps: int, batch: int) -> list[Stage]:
    (stage,) = toy_recipe("unused", steps=steps, batch_size=batch, micro_batch_size=batch // 2).curriculum
    return [replace(stage, data=data)]


def open_corpus_loader(corpus, cache):
    return open_loader(corpus, None, cache, steps=9)


def cache_bytes(cache: str) -> int:
    with ShardCache(0, cache)._lock():
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
    loader = open_corpus_loader("memory://corpus", cache)
    remote.clear()  # those that opening has looked at
    for step in range(9):  # one epoch
        loader.step(step)
    loader.ahead.close()
    assert len(remote) == len(set(remote)) <= SHARDS
    before = len(remote)
    resumed = open_corpus_loader("memory://corpus", ShardCache(cache.size))
    assert same(resumed.step(8), open_corpus_loader(folders[0], None).step(8))
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
    loader = open_corpus_loader("memory://corpus", ShardCache(1 << 30))
    loader.step(0)
    deadline = time.monotonic() + 30
    while len(set(remote)) < SHARDS and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(set(remote)) == SHARDS
    loader.ahead.close()


def test_a_global_order_needs_a_cache_for_everything(folders, remote):
    local = open_loader(folders[0], folders[1], shuffle_shards=0)
    size = int((bytes_of(folders[0]) + bytes_of(folders[1])) / 0.75) + 1
    ours = open_loader("memory://corpus", "memory://masks", ShardCache(size), shuffle_shards=0)
    assert same(ours.step(3), local.step(3))
    ours.ahead.close()
    with pytest.raises(FarspanError, match=r"loading.cache_gib .* data.shuffle_shards 0 .* set it to a few shards"):
        open_loader("memory://corpus", "memory://masks", ShardCache(size // 2), shuffle_shards=0)
    with pytest.raises(FarspanError, match=r"data.shuffle_shards 8 the remote data needs .*; lower it, or raise"):
        open_loader("memory://corpus", "memory://masks", ShardCache(size // 4), shuffle_shards=8)


@pytest.fixture(scope="module")
def pairs_folder(tmp_path_factory):
    """A folder of pairs in 8 shards about two documents each, and of the documents in 8 shards."""
    place = tmp_path_factory.mktemp("pairs")
    documents = make_documents(str(place / "documents"), shards=8, documents=16)
    make_pairs(str(place / "pairs"), documents, pairs=64, documents_per_pair=2, shards=8)
    return place


@pytest.fixture
def remote_pairs(pairs_folder, remote):
    for name in ("documents", "pairs"):
        upload(pairs_folder / name, f"memory://store/{name}")
    return remote


def open_pairs_loader(pairs, cache=None, shuffle_shards=2, steps=30, examples=None):
    data = DataConfig(
        pairs=str(pairs), task=TaskConfig(preset="bart_ls"), source_length=1024, target_length=64,
        shuffle_shards=shuffle_shards, examples=examples,
    )  # fmt: skip
    stages = stages_on(data, steps, 4)
    mixtures = open_stages(stages, cache=cache)
    return Loader(stages, mixtures, 1, ahead=ShardsAhead.of(stages, mixtures, 1))


def test_pairs_come_with_their_documents_through_a_cache_of_a_part_of_both(pairs_folder, remote_pairs, tmp_path):
    size = int((bytes_of(pairs_folder / "pairs") + bytes_of(pairs_folder / "documents")) * 0.9)
    local = open_pairs_loader(pairs_folder / "pairs")
    ours = open_pairs_loader("memory://store/pairs", ShardCache(size))
    for step in range(30):  # more than an epoch
        assert same(ours.step(step), local.step(step)), step
        assert cache_bytes(str(tmp_path / "cache" / "shards")) <= size
    ours.ahead.close()
    assert os.listdir(tmp_path / "cache") == ["shards"]
    before = len(remote_pairs)
    resumed = open_pairs_loader("memory://store/pairs", ShardCache(1 << 30), examples=9)
    assert same(resumed.step(3), open_pairs_loader(pairs_folder / "pairs", examples=9).step(3))
    resumed.ahead.close()
    assert len(remote_pairs) - before < 16  # warm
    with pytest.raises(FarspanError, match=r"data.shuffle_shards 0 the remote data needs .* set it to a few shards"):
        open_pairs_loader("memory://store/pairs", ShardCache(size), shuffle_shards=0)


@pytest.mark.parametrize(
    ("open_loader", "rows", "damaged"),
    [(open_corpus_loader, "corpus", "corpus"), (open_pairs_loader, "store/pairs", "store/documents")],
)
def test_what_is_wrong_with_a_shard_is_raised_at_its_step(remote_pairs, open_loader, rows, damaged):
    loader = open_loader(f"memory://{rows}", ShardCache(1 << 30))
    for path in files.walk(f"memory://{damaged}/shards"):
        files.write_bytes(path, b"damage")
    with pytest.raises(FarspanError, match=rf"memory://{damaged}/shards/part-.*: 6 bytes with sha256"):
        for step in range(9):
            loader.step(step)
    loader.ahead.close()


def open_joint_loader(corpus, cache=None):
    """Both views' rows of joint training, as ``JointUnit`` opens them."""
    generator = make_generator()
    data = replace(data_of(corpus), shuffle_shards=2)
    rows = open_generator_masked(data, generator.special, generator.positions, cache=cache)
    stages = stages_on(data, 20, 4)
    mixtures = [Mixture([Part("data", rows.view_candidates(), shuffle_shards=2)])]
    return rows, Loader(stages, mixtures, 1, ahead=ShardsAhead.of(stages, mixtures, 1))


def test_joint_training_reads_a_part_at_a_time(tmp_path, remote):
    corpus = make_corpus(str(tmp_path / "rows"), shards=12, documents=12)
    upload(corpus, "memory://rows")
    local_rows, local = open_joint_loader(corpus)
    rows, ours = open_joint_loader("memory://rows", ShardCache(int(bytes_of(corpus) * 0.9)))
    assert local.ahead is None
    for step in range(20):
        shown = ours.step(step)
        assert same(shown, local.step(step)), step
        indices = ours.mixtures[0].sequences(np.concatenate([batch.samples for batch in shown]), 1).indices
        assert np.array_equal(rows.choose(indices, None).target_ids, local_rows.choose(indices, None).target_ids)
    ours.ahead.close()
    assert os.listdir(tmp_path / "cache") == ["shards"]


# Shards of a dataset's batches: none are held while it waits for room, and few between batches.


@pytest.fixture
def small_cache(tmp_path, monkeypatch) -> Corpus:
    """A corpus of six shards in a store, with a cache that has room for four."""
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    folder, _ = make_folders(tmp_path, shards=6)
    upload(folder, "memory://corpus")
    sizes = [os.path.getsize(shard.path) for shard in os.scandir(f"{folder}/shards")]
    return Corpus("memory://corpus", cache=ShardCache(4 * max(sizes)))


def mapped(corpus: Corpus) -> list[int]:
    return [shard for shard in range(6) if shard in corpus._fetched]


def test_between_batches_it_keeps_half_of_the_cache(small_cache):
    shards = MappedShards([small_cache])
    shards.hold([(small_cache, shard) for shard in range(4)])
    assert mapped(small_cache) == [0, 1, 2, 3]
    shards.release()
    assert mapped(small_cache) == [2, 3]
    shards.hold([(small_cache, 5)])
    assert mapped(small_cache) == [3, 5]


def test_a_process_that_waits_for_room_holds_none(small_cache, monkeypatch):
    """Otherwise two processes could wait for each other until both give up."""
    shards = MappedShards([small_cache])
    shards.hold([(small_cache, 0), (small_cache, 1)])
    others = [small_cache.cache.map(small_cache.path(shard), small_cache.manifest.shards[shard]) for shard in (4, 5)]
    turn, waited = ShardCache.turn, []

    @contextmanager
    def watched(cache):
        waited.append(mapped(small_cache))
        others.clear()  # the other process ends its batch
        with turn(cache):
            yield

    monkeypatch.setattr(ShardCache, "turn", watched)
    shards.hold([(small_cache, shard) for shard in range(4)])
    assert waited == [[]]
    assert mapped(small_cache) == [0, 1, 2, 3]


def test_a_batch_that_the_cache_cannot_hold_is_refused(small_cache):
    with pytest.raises(FarspanError, match="and the shards of a batch need"):
        MappedShards([small_cache]).hold([(small_cache, shard) for shard in range(6)])
