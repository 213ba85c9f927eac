"""The sliding window and its global positions against their dense statement."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from tests.trainer.model.dense import (
    HEADS,
    WIDTH,
    cut,
    dense,
    dense_mask,
    right_padded,
    seen_by,
)
from trainer.model.config import EncoderConfig
from trainer.model.context import Context, make_context
from trainer.model.layers.heads import HeadsConfig
from trainer.model.patterns.window import Window, WindowAttention
from trainer.model.positions import Learned, Rotary, rotate

WINDOWS = st.builds(Window, size=st.integers(1, 5).map(lambda half: 2 * half))


def dense_layer(layer, x, real, segments, chosen, rotation=None):
    """The output of a layer with global positions, computed with whole masks."""

    def heads(linear):
        q, k, v = linear(x).unflatten(-1, (3, HEADS, -1)).unbind(2)
        return rotate(q, rotation), rotate(k, rotation), v

    chosen = chosen & real
    everything = real[:, None].expand(-1, real.shape[1], -1)
    if segments is not None:
        everything = everything & (segments[:, :, None] == segments[:, None])
    near = seen_by(layer.pattern, real, segments) | (everything & chosen[:, None])
    mixed = dense(*heads(layer.qkv), near).float()
    far = dense(*heads(layer.global_qkv), everything).float()
    return layer.out(torch.where(chosen[..., None, None], far, mixed).flatten(2))


@settings(max_examples=80, deadline=None)
@given(
    pattern=WINDOWS,
    length=st.integers(1, 31),
    lengths=st.lists(st.integers(0, 31), min_size=1, max_size=3),
    share=st.sampled_from([0.05, 0.3, 1.0]),
    seed=st.integers(0, 100),
    packed=st.booleans(),
    rotary=st.booleans(),
)
def test_global_positions_see_and_are_seen_once(pattern, length, lengths, share, seed, packed, rotary):
    torch.manual_seed(seed)
    real = right_padded([min(n, length) for n in lengths], length)
    segments = cut(real, seed) if packed else None
    chosen = torch.rand(real.shape) < share
    layer = WindowAttention(WIDTH, HeadsConfig(count=HEADS), pattern, 0.0)
    x = torch.randn(len(real), length, WIDTH, requires_grad=True)
    rotation = Rotary().rotation(length, WIDTH // HEADS, x.device) if rotary else None
    got = layer(x, make_context(real, segments, chosen)._replace(rotation=rotation))
    expected = dense_layer(layer, x, real, segments, chosen, rotation)
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)
    assert got.isfinite().all()
    assert torch.equal(got[~real.any(1)], layer.out.bias.expand_as(got[~real.any(1)]))
    upstream = torch.randn_like(got) * real[..., None]
    inputs = [x, *layer.parameters()]
    mine, theirs = (
        torch.autograd.grad(y, inputs, upstream, materialize_grads=True, allow_unused=True) for y in (got, expected)
    )
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_a_position_sees_half_a_window_on_either_side():
    seen = dense_mask(Window(4), 9)
    assert seen[4].nonzero().flatten().tolist() == [2, 3, 4, 5, 6]
    assert seen[0].nonzero().flatten().tolist() == [0, 1, 2]


def test_without_global_positions_their_projections_do_nothing():
    layer = WindowAttention(WIDTH, HeadsConfig(count=HEADS), Window(4), 0.0)
    x, nowhere = torch.randn(2, 11, WIDTH), torch.zeros(2, 11, dtype=torch.bool)
    got = layer(x, make_context(None, None, nowhere))
    assert torch.equal(got, layer(x, Context()))
    got.sum().backward()
    assert layer.global_qkv.weight.grad is None


def test_takes_the_fast_kernel():
    layer = WindowAttention(WIDTH, HeadsConfig(count=HEADS), Window(8), 0.0)
    x, real = torch.randn(2, 27, WIDTH), right_padded([27, 9], 27)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for context in (Context(), make_context(real), make_context(real, cut(real, 0), torch.rand(2, 27) < 0.3)):
            layer(x, context).sum().backward()


def test_one_size_for_each_layer():
    sizes = (2, 4, 8)
    assert [Window(sizes).at(layer) for layer in range(3)] == [Window(size) for size in sizes]
    assert Window(6).at(2) == Window(6)
    with pytest.raises(FarspanError, match=r"attention.size has 3 sizes, but model.encoder.layers is 2"):
        EncoderConfig(layers=2, positions=Learned(8), attention=Window(sizes))
