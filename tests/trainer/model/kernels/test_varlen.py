"""Plans: queries and keys sorted into groups, against the pairs that a double loop finds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.model.dense import HEADS, WIDTH
from tests.trainer.model.kernels.emulation import loop
from trainer.model.kernels.varlen import Side, attend, pack

groups = st.lists(st.integers(-1, 4), min_size=1, max_size=12)


@given(queries=groups, keys=groups, moved=st.booleans())
def test_every_query_is_packed_with_the_keys_of_its_group(queries, keys, moved):
    """Queries without keys, and keys without queries, are in no group."""
    places = [torch.randperm(len(side)) if moved else None for side in (queries, keys)]
    sides = [Side(torch.tensor(side), place, len(side)) for side, place in zip((queries, keys), places, strict=True)]
    plan = pack(*sides, groups=5)
    found = set()
    for first, last, begin, end in zip(
        plan.cu_queries[:-1], plan.cu_queries[1:], plan.cu_keys[:-1], plan.cu_keys[1:], strict=True
    ):
        found |= {(int(q), int(k)) for q in plan.queries[first:last] for k in plan.keys[begin:end]}
    at = [range(12) if place is None else place.tolist() for place in places]
    assert found == {(at[0][i], at[1][j]) for i, q in enumerate(queries) for j, k in enumerate(keys) if q == k >= 0}
    assert len(plan.queries) == len({q for q, _ in found})
    assert len(plan.keys) == len({k for _, k in found})
    assert plan.cu_queries.dtype == plan.cu_keys.dtype == torch.int32


def test_sorted_sides_are_taken_as_they_lie():
    side = Side(torch.tensor([0, 0, 1, 2, 2]), None, 2, sorted=True)
    plan = pack(side, side, groups=3)
    assert plan.queries is plan.keys is None
    assert plan.cu_queries.tolist() == [0, 2, 3, 5]
    assert plan.max_queries == 2


@pytest.mark.parametrize("scale", [None, 0.3])
def test_queries_in_no_group_get_zeros_and_no_gradient(scale):
    q, k, v = torch.randn(3, 2, 4, HEADS, WIDTH, requires_grad=True).unbind(0)
    group = torch.tensor([0, 0, -1, 1, 1, -1, -1, 2])
    plan = pack(Side(group, None, 2), Side(group, None, 2), groups=3)
    mixed = attend(plan, q, k, v, scale, kernel=loop)
    alone = group == -1
    assert (mixed.flatten(0, 1)[alone] == 0).all()
    (last,) = (group == 2).nonzero()[0].tolist()
    torch.testing.assert_close(mixed.flatten(0, 1)[last], v.flatten(0, 1)[last])  # its only key
    gradients = torch.autograd.grad(mixed.square().sum(), (q, k, v))
    assert all((gradient.flatten(0, 1)[alone] == 0).all() for gradient in gradients)


def test_a_batch_of_padding_asks_the_kernel_for_nothing():
    q = torch.randn(2, 3, HEADS, WIDTH, requires_grad=True)
    nothing = Side(torch.full((6,), -1), None, 3)
    mixed = attend(pack(nothing, nothing, groups=2), q, q, q, kernel=lambda *_, **__: pytest.fail("called"))
    assert (mixed == 0).all()
    assert (torch.autograd.grad(mixed.sum(), q)[0] == 0).all()


def test_a_plan_is_sent_whole():
    side = Side(torch.tensor([1, 0]), None, 1)
    meta = pack(side, side, groups=2).on(torch.device("meta"))
    assert {x.device.type for x in (meta.queries, meta.keys, meta.cu_queries, meta.cu_keys)} == {"meta"}
    whole = Side(torch.tensor([0, 1]), None, 1, sorted=True)
    assert pack(whole, whole, groups=2).on(torch.device("meta")).queries is None
