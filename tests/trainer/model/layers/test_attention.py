"""Scaled dot-product attention against float64, and the layers built on it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, dense, dense_mask, right_padded
from trainer.model.context import Context
from trainer.model.layers.attention import Causal, SelfAttention, attend, mask_other_documents
from trainer.model.layers.heads import HeadsConfig
from trainer.model.patterns import Full, Span
from trainer.model.patterns.merged import Merged
from trainer.model.positions import Buckets, RelativeBias, Rotary, rotate


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    queries=st.integers(1, 4),
    biased=st.booleans(),
    scale=st.sampled_from([None, 1.0]),
    per_query=st.booleans(),
    seed=st.integers(0, 99),
)
def test_equals_its_formula_and_gives_zeros_without_keys(lengths, queries, biased, scale, per_query, seed):
    torch.manual_seed(seed)
    q = torch.randn(len(lengths), queries, HEADS, WIDTH, requires_grad=True)
    k, v = torch.randn(2, len(lengths), 6, HEADS, WIDTH).requires_grad_().unbind(0)
    mask = right_padded(lengths, 6)[:, None]
    if per_query:
        mask = mask & (torch.rand(len(lengths), queries, 6) < 0.6)
    bias = torch.randn(HEADS, queries, 6) if biased else None
    found = attend(q, k, v, mask, bias, scale=scale)
    expected = dense(q * (scale or WIDTH**-0.5) * WIDTH**0.5, k, v, mask.expand(-1, queries, -1), bias)
    torch.testing.assert_close(found, expected.float(), atol=1e-5, rtol=0)
    empty = ~mask.any(-1).expand(-1, queries)
    assert (found[empty] == 0).all()
    mine = torch.autograd.grad(found.square().sum(), (q, k, v))
    for one, other in zip(mine, torch.autograd.grad(expected.square().sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(one, other.float(), atol=1e-4, rtol=1e-4)


def test_the_mask_of_a_batch_joins_padding_and_documents():
    real = right_padded([4, 2], 4)
    documents = torch.tensor([[0, 0, 1, 1], [0, 0, -1, -1]])
    assert mask_other_documents(None, None, None) is None
    assert torch.equal(mask_other_documents(real, None, None), real[:, None])
    same = documents[:, :, None] == documents[:, None]
    assert torch.equal(mask_other_documents(None, documents, documents), same)
    assert torch.equal(mask_other_documents(real, documents, documents), same & real[:, None])


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("width", [None, 5])
def test_a_layer_is_four_projections_round_attention(scaled, width):
    layer = SelfAttention(8, HeadsConfig(count=2, width=width, scaled=scaled), Full(), 0.0)
    x, real = torch.randn(2, 6, 8), right_padded([6, 3], 6)
    q, k, v = (part(x).unflatten(-1, (2, -1)) for part in split(layer.qkv, 3))
    factor = 1.0 if scaled else q.shape[-1] ** 0.5  # scores of the dense statement are always scaled
    expected = layer.out(dense(q * factor, k, v, real[:, None].expand(-1, 6, -1)).float().flatten(2))
    torch.testing.assert_close(layer(x, Context(real))[real], expected[real], atol=1e-5, rtol=0)


def split(stacked, count):
    """The projections that are stacked in one."""
    weights, biases = stacked.weight.chunk(count), stacked.bias.chunk(count)
    return [lambda x, w=w, b=b: torch.nn.functional.linear(x, w, b) for w, b in zip(weights, biases, strict=True)]


def plainly(layer, x, states, mask, rotation, heads):
    """Attention of ``(B, L, d)`` under a dense mask, head by head, to its own keys and then to those of ``states``."""
    inner, size = layer.out.in_features, layer.out.in_features // heads.count
    queries = layer.qkv.weight[:inner] if heads.groups == heads.count else layer.q.weight
    pairs = layer.qkv.weight[inner:] if heads.groups == heads.count else layer.kv.weight
    outputs = []
    for head in range(heads.count):
        group = head * heads.groups // heads.count
        rows = [slice(size * at, size * (at + 1)) for at in (group, heads.groups + group)]

        def norm(y, module):
            if heads.norm_eps is None:
                return y
            return module.weight * y * (y.square().mean(-1, keepdim=True) + heads.norm_eps) ** -0.5

        def turn(y):
            return rotate(y[:, :, None], rotation)[:, :, 0]

        q, own = (
            turn(norm(x @ queries[size * head : size * (head + 1)].T, layer.norms.q)),
            norm(x @ pairs[rows[0]].T, layer.norms.k),
        )
        k = torch.cat([turn(own), norm(states @ pairs[rows[0]].T, layer.norms.k)], 1)
        v = torch.cat([x, states], 1) @ pairs[rows[1]].T
        scores = (q @ k.mT * (heads.scale or size**-0.5)).masked_fill(~mask, float("-inf"))
        outputs.append(scores.softmax(-1) @ v)
    return layer.out(torch.cat(outputs, -1))


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    "options", [{"kv_count": 2, "norm_eps": 0.1}, {"kv_count": 1, "scale_width": 9.0}, {"norm_eps": 1e-6}], ids=str
)
def test_grouped_and_normalised_heads_equal_their_plain_restatement(options, merged):
    heads, span = HeadsConfig(count=4, bias=False, **options), Span(2, 0)
    layer = SelfAttention(16, heads, Merged(span) if merged else span, 0.0).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, mean=0.3)
    rotations = Rotary(factor=2.0, local_theta=100.0).rotations(9, 4, torch.device("cpu"))
    rotation, local = ((cos.double(), sin.double()) for cos, sin in rotations)
    x, states = torch.randn(2, 9, 16, dtype=torch.float64), torch.randn(2, 5, 16, dtype=torch.float64)
    x, states = x.requires_grad_(), (states if merged else states[:, :0]).requires_grad_()
    real = right_padded([5, 0], 5)
    own = dense_mask(span, 9).expand(2, -1, -1)
    mask = torch.cat([own, real[:, None].expand(-1, 9, -1)], -1) if merged else own
    expected = plainly(layer, x, states, mask, local, heads)
    context = Context(rotation=rotation, local_rotation=local, side_mask=real)
    found = layer(x, context, states if merged else None)
    torch.testing.assert_close(found, expected)
    upstream = torch.randn_like(found)
    inputs = [x, *([states] if merged else []), *layer.parameters()]
    for one, other in zip(*(torch.autograd.grad(y, inputs, upstream) for y in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_weights_are_dropped_in_training_alone():
    layer = SelfAttention(8, HeadsConfig(count=2), Full(), 0.5)
    x = torch.randn(1, 6, 8)
    assert not torch.equal(layer.train()(x, Context()), layer(x, Context()))
    assert torch.equal(layer.eval()(x, Context()), layer(x, Context()))


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("relative", [False, True])
def test_causal_equals_its_dense_mask(length, relative):
    q, k, v = torch.randn(3, 2, length, HEADS, WIDTH)
    biases = ()
    if relative:
        table = RelativeBias(Buckets(count=8, distance=9), HEADS, both_ways=False)
        torch.nn.init.normal_(table.weight)
        biases = tuple(table(offsets).detach() for offsets in Causal().offsets(length))
    expected = dense(q, k, v, dense_mask(Causal(), length)[None], *biases)
    torch.testing.assert_close(Causal().attend(q, k, v, Context(biases=biases)), expected.float(), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": 0}, "count is 0; it must be at least 1"),
        ({"width": 0}, "width is 0; it must be at least 1"),
        ({"kv_count": 3}, "kv_count is 3 and does not divide model.heads.count 4"),
        ({"norm_eps": 0.0}, "norm_eps is 0.0; it must be above 0"),
        ({"scale_width": 9, "scaled": False}, "scale_width is set, but model.heads.scaled is false"),
    ],
)
def test_heads_that_contradict_themselves_are_refused(options, said):
    with pytest.raises(FarspanError, match=rf"model.heads.{said}"):
        HeadsConfig(**{"count": 4, **options})
