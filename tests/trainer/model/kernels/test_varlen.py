"""Plans: queries and keys sorted into groups, against the pairs that a double loop finds."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import HEADS, WIDTH, cut, dense, right_padded, seen_by
from tests.trainer.model.kernels.emulation import loop
from trainer.model.context import make_context
from trainer.model.kernels import varlen
from trainer.model.kernels.varlen import Side, attend, pack, rows_of
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered

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


# Groups of queries and keys against the dense statement of their pattern


def pairs(plan, queries, keys):
    """The number of times that each flattened query attends to each flattened key: ``(B Lq, B Lk)``."""
    seen = torch.zeros(queries, keys, dtype=torch.int64)
    query_at = torch.arange(queries) if plan.queries is None else plan.queries
    key_at = torch.arange(keys) if plan.keys is None else plan.keys
    for i in range(len(plan.cu_queries) - 1):
        some = query_at[plan.cu_queries[i] : plan.cu_queries[i + 1]]
        seen[some[:, None], key_at[plan.cu_keys[i] : plan.cu_keys[i + 1]]] += 1
    return seen


patterns = st.one_of(
    st.just(Full()),
    st.builds(Block, size=st.integers(1, 9)),
    st.builds(Overlap, size=st.integers(1, 4).map(lambda half: 2 * half)),
    st.builds(
        Staggered,
        size=st.integers(1, 4).map(lambda half: 2 * half),
        global_tokens=st.integers(1, 3),
        shifted=st.booleans(),
    ),
)


@st.composite
def batches(draw):
    """real or None, segments or None, B, L."""
    length = draw(st.integers(1, 23))
    lengths = draw(st.lists(st.integers(0, length), min_size=1, max_size=3))
    real = right_padded(lengths, length) if draw(st.booleans()) else None
    whole = torch.ones(len(lengths), length, dtype=torch.bool)
    segments = cut(whole if real is None else real, draw(st.integers(0, 99))) if draw(st.booleans()) else None
    return real, segments, len(lengths), length


def expected_pairs(pattern, real, segments, batch, length):
    """``(B, N, N)`` bool for real queries; those at padding are in no group."""
    known = torch.ones(batch, length, dtype=torch.bool) if real is None else real
    seen = seen_by(pattern, known, segments)
    extra = seen.shape[1] - length
    return seen & torch.cat([torch.ones(batch, extra, dtype=torch.bool), known], 1)[..., None]


@settings(max_examples=150, deadline=None)
@given(pattern=patterns, made=batches())
def test_groups_are_the_pairs_of_the_dense_statement_each_once(pattern, made):
    real, segments, batch, length = made
    context = make_context(real, segments)
    plan = pattern.plan(rows_of(context, batch, length, torch.device("cpu")))
    seen = expected_pairs(pattern, real, segments, batch, length)
    size = seen.shape[1]
    expected = torch.block_diag(*seen.long())
    assert torch.equal(pairs(plan, batch * size, batch * size), expected)


@settings(max_examples=40, deadline=None)
@given(pattern=patterns, made=batches(), scale=st.sampled_from([None, 1.0]))
def test_attention_over_groups_equals_dense_forward_and_backward(pattern, made, scale):
    real, segments, batch, length = made
    plan = pattern.plan(rows_of(make_context(real, segments), batch, length, torch.device("cpu")))
    seen = expected_pairs(pattern, real, segments, batch, length)
    torch.manual_seed(0)
    q, k, v = torch.randn(batch, seen.shape[1], 3, HEADS, WIDTH).requires_grad_().unbind(2)
    got = varlen.attend(plan, q, k, v, scale, kernel=loop)
    expected = dense(q * (scale or WIDTH**-0.5) * WIDTH**0.5, k, v, seen)
    torch.testing.assert_close(got, expected.float(), atol=1e-5, rtol=0)
    upstream = torch.randn_like(got)
    mine = torch.autograd.grad(got, (q, k, v), upstream, allow_unused=not seen.any())
    theirs = torch.autograd.grad(expected, (q, k, v), upstream.double())
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other, atol=1e-5, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    targets=st.integers(1, 5),
    padded_queries=st.booleans(),
)
def test_across_sees_the_real_keys_of_the_row(lengths, targets, padded_queries):
    real, batch = right_padded(lengths, 9), len(lengths)
    query_real = right_padded([min(n, targets) for n in lengths], targets) if padded_queries else None
    cpu = torch.device("cpu")
    queries = varlen.rows_of(make_context(query_real), batch, targets, cpu)
    plan = varlen.across(queries, varlen.rows_of(make_context(real), batch, 9, cpu))
    asked = torch.ones(batch, targets, dtype=torch.bool) if query_real is None else query_real
    expected = torch.block_diag(*(asked[:, :, None] & real[:, None]).long())
    assert torch.equal(pairs(plan, batch * targets, batch * 9), expected)


@pytest.mark.parametrize("pattern", [Full(), Block(4), Staggered(size=4, global_tokens=2)])
def test_whole_rows_are_not_gathered(pattern):
    plan = pattern.plan(rows_of(make_context(), 2, 10, torch.device("cpu")))
    assert plan.queries is None
    assert (plan.keys is None) == (not pattern.extra_tokens)


def test_work_shrinks_with_padding():
    plan = Block(4).plan(rows_of(make_context(right_padded([10, 3], 10)), 2, 10, torch.device("cpu")))
    assert plan.cu_queries.tolist() == plan.cu_keys.tolist() == [0, 4, 8, 10, 13, 13, 13]
    assert (plan.max_queries, plan.max_keys) == (4, 4)
