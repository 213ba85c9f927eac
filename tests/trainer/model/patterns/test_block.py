"""Disjoint blocks against their dense statement, and what padding must not change."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, assert_equals_dense, cut, dense_mask, right_padded
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.context import Context, make_context
from trainer.model.layers.attention import SelfAttention
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.positions import Learned, tile_positions


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.builds(Block, size=st.integers(1, 9)),
    length=st.integers(1, 23),
    lengths=st.lists(st.integers(0, 23), min_size=1, max_size=3),
    seed=st.integers(0, 100),
    packed=st.booleans(),
    relative=st.booleans(),
)
def test_equals_its_dense_mask_forward_and_backward(pattern, length, lengths, seed, packed, relative):
    segments = cut(right_padded(lengths, length), seed) if packed else None
    assert_equals_dense(pattern, length, lengths, seed, segments, relative)


def test_takes_the_fast_kernel():
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


def test_a_query_repeated_in_every_block_needs_nothing_of_the_model():
    """Question answering as BART-LS does it: blocks are ``query chunk``, each encoded as if alone."""
    encoder = EncoderConfig(layers=2, positions=Learned(24), attention=Block(8))
    config = ModelConfig(
        width=WIDTH, heads=HeadsConfig(count=HEADS), feed_forward=FeedForwardConfig(width=12), encoder=encoder
    )
    model = build_model(replace(config, init_std=0.3), 40, seed=0).eval()
    positions = model.encoder.embedded.positions.weight
    positions.data = tile_positions(positions.data[:8], 24)  # as in a model that was made from a short one
    ids = torch.cat([torch.tensor([[7, 9, 2]]).expand(3, -1), torch.randint(0, 40, (3, 5))], 1)  # query, chunk
    real = right_padded([8, 8, 6], 8)
    together = model.encode(ids.reshape(1, 24), real.reshape(1, 24))
    torch.testing.assert_close(together.reshape(3, 8, WIDTH)[real], model.encode(ids, real)[real], atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 3, 8, 10])
def test_operations_are_those_of_the_dense_mask(length):
    pattern = Block(4)
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())


def test_block_of_nothing_is_refused():
    with pytest.raises(FarspanError, match="size is 0"):
        Block(0)
