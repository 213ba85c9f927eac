"""Patterns against their own dense statement, with padding, odd lengths and empty rows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from trainer.model.attention import HeadsConfig, SelfAttention
from trainer.model.context import Context, make_context
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Causal, Full

HEADS, WIDTH = 2, 8


def dense(q, k, v, mask):
    """Attention of ``(B, L, H, D)`` under a ``(B, L, L)`` bool mask, in float64; zeros where nothing is seen."""
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v.double())


def dense_mask(pattern, length):
    """``(G + L, G + L)`` bool, as the pattern says of itself."""
    places = torch.arange(pattern.extra_tokens + length)
    return pattern.sees(places[:, None], places, length)


def right_padded(lengths, width):
    return torch.arange(width) < torch.tensor(lengths)[:, None]


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.one_of(st.just(Full()), st.builds(Block, size=st.integers(1, 9))),
    length=st.integers(1, 23),
    lengths=st.lists(st.integers(0, 23), min_size=1, max_size=3),
    seed=st.integers(0, 100),
)
def test_pattern_equals_its_dense_mask_forward_and_backward(pattern, length, lengths, seed):
    torch.manual_seed(seed)
    real = right_padded([min(n, length) for n in lengths], length)
    q, k, v = torch.randn(3, len(real), length, HEADS, WIDTH).requires_grad_().unbind(0)
    seen = dense_mask(pattern, length)[None] & real[:, None, :]
    expected = dense(q, k, v, seen)
    got = pattern.attend(q, k, v, make_context(real))
    torch.testing.assert_close(got, expected.float(), atol=1e-5, rtol=0)
    assert (got[~seen.any(2)] == 0).all()
    upstream = torch.randn_like(got)
    for x in (q, k, v):
        mine, theirs = (torch.autograd.grad(y, x, upstream.to(y.dtype), retain_graph=True)[0] for y in (got, expected))
        assert mine.isfinite().all()
        # the dense statement's softmax over nothing has NaN gradients, there ours must be zero
        torch.testing.assert_close(mine, theirs.nan_to_num(0.0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("length", [1, 7])
def test_causal_equals_its_dense_mask(length):
    q, k, v = torch.randn(3, 2, length, HEADS, WIDTH)
    expected = dense(q, k, v, dense_mask(Causal(), length)[None])
    torch.testing.assert_close(Causal().attend(q, k, v, Context()), expected.float(), atol=1e-5, rtol=0)


def test_packed_blocks_take_the_fast_kernel():
    q, k, v = torch.randn(2, 24, 3, HEADS, WIDTH, requires_grad=True).unbind(2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        Block(8).attend(q, k, v, Context()).sum().backward()
        Block(8).attend(q, k, v, make_context(right_padded([24, 9], 24))).sum().backward()


@pytest.mark.parametrize("real", [None, right_padded([20, 13], 20)])
def test_padding_a_batch_to_whole_blocks_changes_nothing(real):
    layer = SelfAttention(WIDTH, HeadsConfig(count=HEADS), Block(8), 0.0)
    x = torch.randn(2, 20, WIDTH)
    known = torch.ones(2, 20, dtype=torch.bool) if real is None else real
    wide = layer(F.pad(x, (0, 0, 0, 4)), make_context(F.pad(known, (0, 4))))[:, :20]
    torch.testing.assert_close(layer(x, make_context(real))[known], wide[known], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("pattern", "length"), [(Full(), 7), (Causal(), 7), (Block(4), 8), (Block(4), 10), (Block(4), 3)]
)
def test_flops_count_the_pairs_of_the_dense_mask(pattern, length):
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())


def test_block_of_nothing_is_refused():
    with pytest.raises(FarspanError, match="size is 0"):
        Block(0)
