"""Shards that a dataset has mapped: none are held while it waits for room, and few between batches."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from corpora.storage.copies.shard_cache import ShardCache
from tests.object_store import upload
from tests.trainer.masked_folders import make_folders
from trainer.mapped_shards import MappedShards


@pytest.fixture
def corpus(tmp_path, monkeypatch) -> Corpus:
    """A corpus of six shards in a store, with a cache that has room for four."""
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    folder, _ = make_folders(tmp_path, shards=6)
    upload(folder, "memory://corpus")
    sizes = [os.path.getsize(shard.path) for shard in os.scandir(f"{folder}/shards")]
    return Corpus("memory://corpus", cache=ShardCache(4 * max(sizes)))


def mapped(corpus: Corpus) -> list[int]:
    return [shard for shard in range(6) if shard in corpus._fetched]


def test_between_batches_it_keeps_half_of_the_cache(corpus):
    shards = MappedShards([corpus])
    shards.hold([(corpus, shard) for shard in range(4)])
    assert mapped(corpus) == [0, 1, 2, 3]
    shards.rest()
    assert mapped(corpus) == [2, 3]
    shards.hold([(corpus, 5)])
    assert mapped(corpus) == [3, 5]


def test_a_process_that_waits_for_room_holds_none(corpus, monkeypatch):
    """Otherwise two processes could wait for each other until both give up."""
    shards = MappedShards([corpus])
    shards.hold([(corpus, 0), (corpus, 1)])
    others = [corpus.cache.map(corpus.path(shard), corpus.manifest.shards[shard]) for shard in (4, 5)]
    turn, waited = ShardCache.turn, []

    @contextmanager
    def watched(cache):
        waited.append(mapped(corpus))
        others.clear()  # the other process ends its batch
        with turn(cache):
            yield

    monkeypatch.setattr(ShardCache, "turn", watched)
    shards.hold([(corpus, shard) for shard in range(4)])
    assert waited == [[]]
    assert mapped(corpus) == [0, 1, 2, 3]


def test_a_batch_that_the_cache_cannot_hold_is_refused(corpus):
    with pytest.raises(FarspanError, match="and the shards of a batch need"):
        MappedShards([corpus]).hold([(corpus, shard) for shard in range(6)])
