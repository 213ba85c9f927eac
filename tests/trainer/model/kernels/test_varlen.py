"""Tests of attention in groups, of the choice of kernels and of their saved results."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.conversion.models import tiny_config
from tests.trainer.model.dense import HEADS, WIDTH, cut, dense, right_padded, seen_by
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.context import Context, make_context
from trainer.model.kernels import choose, flex, varlen
from trainer.model.kernels.choose import attend_across, attend_within, can_fuse, plan_within
from trainer.model.kernels.varlen import Side, attend, pack, rows_of
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.patterns import Block, Full, Overlap, Staggered, Window
from trainer.model.positions import Learned
from trainer.parallel.wrapping import apply_activation_checkpointing


def loop(q, k, v, cu_queries, cu_keys, max_queries, max_keys, *, scale=None):
    """Group by group, with all that the kernel asks of its arguments."""
    parts = []
    assert len(cu_queries) == len(cu_keys)
    assert cu_queries.dtype == cu_keys.dtype == torch.int32
    assert (cu_queries[-1], cu_keys[-1]) == (len(q), len(k))
    for first, last, first_key, last_key in zip(cu_queries, cu_queries[1:], cu_keys, cu_keys[1:], strict=False):
        assert (first == last) == (first_key == last_key)  # nothing is emitted that has nothing to see
        assert last - first <= max_queries
        assert last_key - first_key <= max_keys
        group, keys = slice(first, last), slice(first_key, last_key)
        scores = torch.einsum("qhd,khd->hqk", q[group], k[keys]) * (scale or q.shape[-1] ** -0.5)
        parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[keys]))
    return torch.cat(parts)


groups = st.lists(st.integers(-1, 4), min_size=1, max_size=12)


@given(queries=groups, keys=groups, moved=st.booleans())
def test_every_query_is_packed_with_the_keys_of_its_group(queries, keys, moved):
    """Queries without keys, and keys without queries, are in no group."""
    places = [torch.randperm(len(side)) if moved else None for side in (queries, keys)]
    one, other = Side(torch.tensor(queries), places[0], len(queries)), Side(torch.tensor(keys), places[1], len(keys))
    plan = pack(one, other, 5)
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
    assert torch.equal(pairs(plan, batch * size, batch * size), torch.block_diag(*seen.long()))


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
    for one, other in zip(mine, torch.autograd.grad(expected, (q, k, v), upstream.double()), strict=True):
        torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other, atol=1e-5, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3), targets=st.integers(1, 5), padded_queries=st.booleans()
)
def test_across_sees_the_real_keys_of_the_row(lengths, targets, padded_queries):
    real, batch = right_padded(lengths, 9), len(lengths)
    query_real = right_padded([min(n, targets) for n in lengths], targets) if padded_queries else None
    cpu = torch.device("cpu")
    queries = varlen.rows_of(make_context(query_real), batch, targets, cpu)
    plan = varlen.plan_documents(queries, varlen.rows_of(make_context(real), batch, 9, cpu))
    asked = torch.ones(batch, targets, dtype=torch.bool) if query_real is None else query_real
    expected = torch.block_diag(*(asked[:, :, None] & real[:, None]).long())
    assert torch.equal(pairs(plan, batch * targets, batch * 9), expected)


@pytest.mark.parametrize("pattern", [Full(), Block(4), Staggered(size=4, global_tokens=2)])
def test_whole_rows_are_not_gathered(pattern):
    plan = pattern.plan(rows_of(make_context(), 2, 10, torch.device("cpu")))
    assert plan.queries is None
    assert (plan.keys is None) == (not pattern.extra_tokens)


REAL = right_padded([10, 3], 10)


def test_a_cpu_takes_the_patterns_own_way():
    q, k, v = torch.randn(3, 2, 10, HEADS, WIDTH, dtype=torch.bfloat16)
    context = make_context(REAL)
    assert not can_fuse(q, 0.0)
    assert torch.equal(attend_within(Block(4), q, k, v, context), Block(4).attend(q, k, v, context))
    assert attend_across(q, k, v, Context(), Context(REAL)) is None


def test_all_layers_share_the_plan_of_a_batch():
    q = torch.randn(2, 10, HEADS, WIDTH)
    segments = cut(REAL, 0)
    plan = plan_within(Block(4), q, make_context(REAL, segments))
    assert plan is not None
    assert plan_within(Block(4), q, make_context(REAL, segments)) is plan
    assert plan_within(Block(8), q, make_context(REAL, segments)) is not plan
    assert plan_within(Block(4), q, make_context(REAL, segments.clone())) is not plan
    assert plan_within(Block(4), q, make_context(REAL.clone(), segments)) is not plan


def test_whole_rows_and_relative_positions_need_no_plan():
    q = torch.randn(2, 10, HEADS, WIDTH)
    assert plan_within(Block(4), q, make_context()) is None
    assert plan_within(Block(4), q, make_context(REAL)._replace(biases=(torch.zeros(HEADS, 4, 4),))) is None


def model_of(pattern):
    pooling = Pooling(layers=1, kernel=6, stride=4, padding=3, reference_init=True)
    own_tokens = pattern.extra_tokens > 0
    encoder = EncoderConfig(layers=2, positions=Learned(32), attention=pattern, pooling=None if own_tokens else pooling)
    decoder = DecoderConfig(layers=2, positions=Learned(8), global_cross_attention=own_tokens)
    return build_model(tiny_config(encoder, decoder), 20, seed=0)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "pattern", [Full(), Block(4), Overlap(4), Staggered(size=4, global_tokens=2)], ids=lambda pattern: pattern.pattern
)
def test_a_model_learns_the_same_from_groups_as_from_masks(pattern, packed, monkeypatch):
    model = model_of(pattern)
    real = right_padded([10, 3, 0], 10)
    batch = {
        "source_ids": torch.arange(30).view(3, 10) % 20,
        "decoder_ids": torch.arange(12).view(3, 4),
        "labels": torch.arange(12).view(3, 4) + 1,
        "source_padding_mask": real,
        "segment_ids": cut(real, 3) if packed else None,
    }

    def learned():
        loss = model(**batch).minimised
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    expected = learned()
    calls = []

    def kernel(*tensors, **options):
        calls.append(1)
        return loop(*tensors, **options)

    monkeypatch.setattr(choose, "can_fuse", lambda q, dropout: True)
    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    got = learned()
    # encoder layers, a pooled one, cross-attention, and that to learned tokens, which have a mask with documents only
    assert len(calls) == 2 + (not pattern.extra_tokens) + 2 + 2 * (pattern.extra_tokens > 0 and packed)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("width", [8, 16])
def test_windows_take_masks_where_heads_are_wide_enough(monkeypatch, width):
    q, k, v = torch.randn(3, 2, 10, HEADS, width)
    expected = Window(4).attend(q, k, v, make_context(REAL))
    taken = []
    original = flex.attend
    monkeypatch.setattr(choose, "can_fuse", lambda q, dropout: True)
    monkeypatch.setattr(flex, "attend", lambda *given: taken.append(given[0]) or original(*given))
    with torch.no_grad():
        got = attend_within(Window(4), q, k, v, make_context(REAL))
    assert taken == ([Window(4)] if width == 16 else [])  # FlexAttention refuses heads below 16
    torch.testing.assert_close(got[REAL], expected[REAL], atol=1e-5, rtol=0)


def plain_flex(q, k, v, score_mod, block_mask, scale):
    """FlexAttention's result, with a backward pass on a CPU."""
    places = [torch.arange(n) for n in (len(q), q.shape[1], q.shape[2], k.shape[2])]
    b, h, i, j = (place.view([-1 if at == axis else 1 for at in range(4)]) for axis, place in enumerate(places))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, block_mask.mask_mod(b, h, i, j), scale=scale)


@pytest.mark.parametrize("mode", ["none", "layer", "selective"])
def test_flex_attention_runs_once_where_its_result_is_kept(monkeypatch, mode):
    encoder = EncoderConfig(layers=3, positions=Learned(32), attention=Window(4))
    config = tiny_config(encoder, positions=8, width=32, heads=HeadsConfig(count=2))
    model, calls = build_model(config, 20, seed=0), []

    def kernel(*given, **named):
        calls.append(1)
        return plain_flex(*given, **named)

    batch = {
        "source_ids": torch.arange(20).view(2, 10),
        "decoder_ids": torch.arange(8).view(2, 4),
        "labels": torch.arange(8).view(2, 4) + 1,
        "source_padding_mask": REAL,
    }

    def learned():
        for parameter in model.parameters():
            parameter.grad = None
        loss = model(**batch).minimised
        loss.backward()
        return loss, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)

    expected = learned()
    monkeypatch.setattr(choose, "can_fuse", lambda q, dropout: True)
    monkeypatch.setattr(varlen, "AVAILABLE", False)
    monkeypatch.setattr(flex, "flex_attention", kernel)
    apply_activation_checkpointing(model, mode)
    got = learned()
    assert len(calls) == (6 if mode == "layer" else 3)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-3)
    calls.clear()
    learned()  # nothing is left over for the next step
    assert len(calls) == (6 if mode == "layer" else 3)
