from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.keyed import make_key
from trainer.order import permute, sample_indices, step_samples

KEY = make_key(0, "test")


@settings(max_examples=80, deadline=None)
@given(size=st.one_of(st.integers(1, 40), st.integers(1, 5000)), seed=st.integers(0, 2**32))
def test_permute_is_a_bijection(size, seed):
    images = permute(np.arange(size), size, make_key(seed, "test"))
    assert np.array_equal(np.sort(images), np.arange(size))


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
    draws = 3000
    images = np.array([permute(np.arange(size), size, make_key(seed, "test")) for seed in range(draws)])
    counts = np.stack([np.bincount(images[:, position], minlength=size) for position in range(size)])
    expected = draws / size
    chi_squared = ((counts - expected) ** 2 / expected).sum(1)  # per position, size - 1 degrees of freedom
    assert chi_squared.max() < size - 1 + 6 * np.sqrt(2 * (size - 1)) + 6


def test_neighbours_scatter():
    size = 10_000
    steps = np.abs(np.diff(permute(np.arange(size), size, KEY)))
    assert steps.mean() == pytest.approx(size / 3, rel=0.05)  # of two independent uniform numbers


def test_epochs_are_whole_and_differ():
    epochs, indices = sample_indices(np.arange(35), 10, seed=3)
    assert epochs.tolist() == [n // 10 for n in range(35)]
    for epoch in range(3):
        assert sorted(indices[epochs == epoch]) == list(range(10))
    assert indices[:10].tolist() != indices[10:20].tolist()
    assert indices.tolist() != sample_indices(np.arange(35), 10, seed=4)[1].tolist()


@given(step=st.integers(0, 100), batch=st.integers(1, 40), world=st.integers(1, 7))
def test_ranks_split_a_step_without_gap(step, batch, world):
    shares = [step_samples(step, batch, rank, world) for rank in range(world)]
    assert np.concatenate(shares).tolist() == list(range(step * batch, (step + 1) * batch))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
