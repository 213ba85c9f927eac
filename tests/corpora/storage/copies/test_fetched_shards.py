"""Shards of a remote artefact: those that stay mapped, and those that are released."""

from __future__ import annotations

from corpora.storage.copies.fetched_shards import FetchedShards


def opened(last: int) -> tuple[FetchedShards, list[int]]:
    """Shards, and the numbers of those that were opened."""
    numbers: list[int] = []

    def open_shard(shard):
        numbers.append(shard)
        return f"buffer {shard}", f"reader {shard}"

    return FetchedShards(open_shard, last), numbers


def test_the_last_used_ones_stay():
    shards, numbers = opened(last=2)
    for shard in (0, 1, 0, 2, 0, 1):
        assert shards(shard) == (f"buffer {shard}", f"reader {shard}")
    assert numbers == [0, 1, 2, 1]


def test_those_that_are_asked_for_stay_beside_the_last_used_one():
    shards, numbers = opened(last=1)
    shards.keep({3, 4})
    for shard in (3, 4, 5, 6, 3, 4, 6, 5):
        shards(shard)
    assert numbers == [3, 4, 5, 6, 5]
    shards.keep({4})
    assert [shard in shards for shard in (3, 4, 5)] == [False, True, False]


def test_what_was_made_of_a_shard_goes_with_it():
    shards, numbers = opened(last=1)
    shards.derived(0)["view"] = 1
    assert shards.derived(0) == {"view": 1}
    shards.keep(set())
    assert shards.derived(0) == {}
    assert numbers == [0, 0]


def test_a_shard_that_was_fetched_ahead_is_not_opened():
    shards, numbers = opened(last=1)
    shards.add(7, ("buffer", "reader"))
    shards.add(7, ("another", "reader"))
    assert shards(7) == ("buffer", "reader")
    assert numbers == []
