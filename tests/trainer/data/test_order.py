import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.keyed import make_key
from trainer.data.order import Share, mix, partition, permute, sample_places

KEY = make_key(0, "test")


@settings(max_examples=80, deadline=None)
@given(size=st.one_of(st.integers(1, 40), st.integers(1, 5000)), seed=st.integers(0, 2**32))
def test_permute_is_a_bijection(size, seed):
    assert np.array_equal(np.sort(permute(np.arange(size), size, make_key(seed, "test"))), np.arange(size))


def test_permute_is_pointwise():
    size = 340_000_000
    positions = np.array([0, 7, size - 1, 123_456_789])
    together = permute(positions, size, KEY)
    assert [int(permute(np.array([p]), size, KEY)[0]) for p in positions] == together.tolist()
    assert ((together >= 0) & (together < size)).all()


def test_permute_golden():
    """Changing these means that runs cannot be resumed across versions."""
    assert permute(np.arange(10), 10, KEY).tolist() == [7, 4, 9, 1, 6, 3, 2, 5, 0, 8]
    assert permute(np.arange(3), 10**12, KEY).tolist() == [931323642587, 161902096760, 85986984372]


@pytest.mark.parametrize("size", [2, 5, 16, 23])
def test_every_position_goes_everywhere_equally_often(size):
    draws = 1000
    images = np.array([permute(np.arange(size), size, make_key(seed, "test")) for seed in range(draws)])
    counts = np.stack([np.bincount(images[:, position], minlength=size) for position in range(size)])
    expected = draws / size
    chi_squared = ((counts - expected) ** 2 / expected).sum(1)  # per position, size - 1 degrees of freedom
    assert chi_squared.max() < size - 1 + 6 * np.sqrt(2 * (size - 1)) + 6


def test_neighbours_scatter():
    size = 10_000
    steps = np.abs(np.diff(permute(np.arange(size), size, KEY)))
    assert steps.mean() == pytest.approx(size / 3, rel=0.05)  # of two independent uniform numbers


weights = st.lists(st.one_of(st.integers(1, 9), st.floats(0.01, 1.0)), min_size=1, max_size=8)


@given(weights=weights, first=st.one_of(st.just(0), st.integers(0, 10**8)))
def test_shares_keep_to_their_weights_at_every_sample(weights, first):
    samples = np.arange(first, first + 300)
    sources, numbers = mix(samples, weights)
    sizes = len(weights)
    allowed = {1: 0.0, 2: 0.5}.get(sizes, (1 + sum(1 / k for k in range(1, sizes - 1))) / 2) + 1e-6 + first * 2.0**-29
    for source, weight in enumerate(weights):
        own = sources == source
        if own.any():
            before = numbers[own][0]  # its samples below ``first``
            assert numbers[own].tolist() == list(range(before, before + own.sum()))
            counts = before + np.cumsum(own)
            assert np.abs(counts - (samples + 1) * (weight / sum(weights))).max() <= allowed


@given(weights=weights, size=st.integers(1, 400))
def test_each_sample_is_told_alone_and_none_is_lost(weights, size):
    sources, numbers = mix(np.arange(size), weights)
    assert len(set(zip(sources.tolist(), numbers.tolist(), strict=True))) == size
    order = np.random.default_rng(0).permutation(size)
    for whole, alone in zip((sources, numbers), mix(order, weights), strict=True):
        assert np.array_equal(whole[order], alone)
    for source in range(len(weights)):
        assert sorted(numbers[sources == source]) == list(range((sources == source).sum()))


def test_mix_golden():
    """Changing these means that runs cannot be resumed across versions."""
    assert mix(np.arange(12), [1, 2, 1])[0].tolist() == [1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]
    assert mix(np.arange(4), [0.25])[1].tolist() == [0, 1, 2, 3]
    part = round(0.9 * 2**30)
    assert mix(np.array([10**15]), [0.1, 0.9])[1].tolist() == [round(Fraction(10**15 * part, 2**30))]


@given(
    shares=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 5)), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
)
def test_every_epoch_of_every_source_is_a_permutation(shares, seed):
    shares = [Share(f"source-{number}", *share) for number, share in enumerate(shares)]
    places = sample_places(np.arange(200), shares, seed)
    for source, share in enumerate(shares):
        own = places.sources == source
        for epoch in range(places.epochs[own].max(initial=0)):  # all but the last one are whole
            assert sorted(places.indices[own & (places.epochs == epoch)]) == list(range(share.size))
        last = places.indices[own & (places.epochs == places.epochs[own].max(initial=0))]
        assert len(set(last.tolist())) == len(last)


@given(
    shards=st.lists(st.integers(0, 9), min_size=1, max_size=8).filter(any),
    together=st.integers(1, 9),
    seed=st.integers(0, 2**32),
)
def test_an_epoch_by_groups_of_shards_is_a_permutation_that_reads_each_shard_in_one_group(shards, together, seed):
    size = sum(shards)
    share = Share("one", size, 1.0, tuple(shards), together)
    epochs = [sample_places(np.arange(epoch * size, (epoch + 1) * size), [share], seed).indices for epoch in range(2)]
    shard_of = np.repeat(np.arange(len(shards)), shards)
    for indices in epochs:
        assert sorted(indices.tolist()) == list(range(size))
        seen, position, groups = set(), 0, 0
        while position < size:  # a group: as many shards as belong together, whole, and none seen before
            now = set()
            rest = shard_of[indices[position:]].tolist()
            for count, shard in enumerate(rest):  # the shortest prefix of whole shards, all of one group
                now.add(shard)
                if count + 1 == sum(shards[one] for one in now):
                    break
            assert not now & seen
            assert len(now) <= together
            seen, position, groups = seen | now, position + count + 1, groups + 1
    at_random = [7, 0, 3][: len(shards)]
    one_by_one = [int(sample_places(np.array([n % size]), [share], seed).indices[0]) for n in at_random]
    assert one_by_one == [int(epochs[0][n % size]) for n in at_random]


def test_groups_of_shards_change_from_epoch_to_epoch_and_with_the_seed():
    share = Share("one", 64, 1.0, (8,) * 8, 2)

    def first_group(epoch, seed):
        return set((sample_places(np.arange(64 * epoch, 64 * epoch + 16), [share], seed).indices // 8).tolist())

    groups = [frozenset(first_group(epoch, seed)) for seed in range(4) for epoch in range(4)]
    assert {len(group) for group in groups} == {2}
    assert len(set(groups)) > 8


def test_a_group_of_all_shards_is_permuted_as_a_whole():
    share = Share("one", 400, 1.0, (100,) * 4, 4)
    first = sample_places(np.arange(100), [share], 0).indices
    assert np.bincount(first // 100, minlength=4).min() > 10


def test_epochs_seeds_and_sources_of_one_size_differ():
    shares = [Share("one", 20), Share("other", 20)]
    sources, epochs, indices = sample_places(np.arange(80), shares, seed=3)
    orders = [indices[(sources == s) & (epochs == e)].tolist() for s in (0, 1) for e in (0, 1)]
    orders.append(sample_places(np.arange(20), shares[:1], seed=4).indices.tolist())
    assert len(set(map(tuple, orders))) == 5
    alone = sample_places(np.arange(20), shares[:1], seed=3).indices
    assert alone.tolist() == orders[0]  # another source beside it changes when a sequence comes, not which


@given(batch=st.integers(1, 40), micro=st.integers(1, 12), world=st.integers(1, 9))
def test_micro_batches_are_dealt_whole_and_evenly(batch, micro, world):
    shares = [partition(batch, micro, rank, world) for rank in range(world)]
    assert {len(share) for share in shares} == {math.ceil(math.ceil(batch / micro) / world)}
    assert sum(cut is None for share in shares for cut in share) < world
    cuts = [cut for share in shares for cut in share if cut is not None]
    assert np.concatenate([np.arange(batch)[cut] for cut in cuts]).tolist() == list(range(batch))
    assert all(cut.start % micro == 0 and cut.stop - cut.start <= micro for cut in cuts)
