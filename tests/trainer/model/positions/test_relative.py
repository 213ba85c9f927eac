"""Buckets of relative positions: those of T5, their order and their borders."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.t5.modeling_t5 import T5Attention

from corpora.errors import FarspanError
from trainer.model.positions.relative import Buckets, RelativeBias, bucket


@pytest.mark.parametrize(("count", "distance"), [(32, 128), (8, 12), (64, 500)])
@pytest.mark.parametrize("both_ways", [True, False])
def test_buckets_are_theirs_over_a_wide_range(count, distance, both_ways):
    offsets = torch.cat([torch.arange(-20_000, 20_001), torch.tensor([-(2**31), -(10**6), 10**6, 2**31])])
    expected = T5Attention._relative_position_bucket(offsets, both_ways, count, distance)
    assert torch.equal(bucket(offsets, Buckets(count, distance), both_ways), expected)


@given(count=st.integers(1, 16).map(lambda quarter: 4 * quarter), distance=st.integers(1, 2000), both=st.booleans())
def test_buckets_are_single_distances_first_then_wider_and_wider(count, distance, both):
    buckets = Buckets(count, count // 2 + distance)
    behind = bucket(-torch.arange(buckets.distance + 50), buckets, both)
    assert (behind.diff() >= 0).all()
    single = (count // 2 if both else count) // 2
    assert behind[:single].tolist() == list(range(single))
    assert behind[buckets.distance :].unique().tolist() == [(count // 2 if both else count) - 1]
    ahead = bucket(torch.arange(1, 9), buckets, both)
    assert torch.equal(ahead, behind[1:9] + count // 2) if both else (ahead == 0).all()


def test_a_bias_is_that_of_its_bucket_for_every_head():
    table = RelativeBias(Buckets(8, 12), 3, both_ways=True)
    torch.nn.init.normal_(table.weight)
    offsets = torch.arange(-20, 20).view(4, 10)
    found = table(offsets)
    assert found.shape == (3, 4, 10)
    for head in range(3):
        assert torch.equal(found[head], table.weight[bucket(offsets, table.buckets, True), head])


@pytest.mark.parametrize(
    ("count", "distance", "said"),
    [
        (6, 128, "count is 6; it must be a multiple of 4"),
        (0, 128, "count is 0"),
        (32, 16, "distance is 16 with count 32; it must be above 16"),
    ],
)
def test_buckets_that_cannot_be_are_refused(count, distance, said):
    with pytest.raises(FarspanError, match=said):
        Buckets(count, distance)
    assert Buckets().limit is None
