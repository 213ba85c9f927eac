"""Patterns against their dense statements, and what each lets a position see."""

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
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.layered import Layered
from trainer.model.patterns.local import Local
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.span import Span
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned, tile_positions

PATTERNS = {
    "full": st.just(Full()),
    "block": st.builds(Block, size=st.integers(1, 9)),
    "block_global": st.integers(2, 8).flatmap(
        lambda size: st.builds(BlockGlobal, st.just(size), st.integers(1, size - 1))
    ),
    "local": st.builds(Local, st.integers(1, 9)),
    "overlap": st.builds(Overlap, size=st.sampled_from([2, 4, 6, 8])),
    "span": st.builds(Span, st.integers(0, 9), st.integers(0, 9)),
    "staggered": st.builds(
        lambda half, extra, layer: Staggered(2 * half, extra).at(layer),
        half=st.integers(1, 5),
        extra=st.integers(1, 3),
        layer=st.integers(0, 1),
    ),
    "window": st.builds(Window, size=st.integers(1, 5).map(lambda half: 2 * half)),
}
RELATIVE = {"full", "block", "local", "overlap"}  # with one table of biases


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    length=st.integers(1, 31),
    lengths=st.lists(st.integers(0, 31), min_size=1, max_size=3),
    seed=st.integers(0, 100),
    packed=st.booleans(),
    relative=st.booleans(),
)
def test_equals_its_dense_mask_forward_and_backward(name, data, length, lengths, seed, packed, relative):
    segments = cut(torch.ones(len(lengths), length, dtype=torch.bool), seed) if packed else None
    assert_equals_dense(data.draw(PATTERNS[name]), length, lengths, seed, segments, relative and name in RELATIVE)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 16, 17, 18, 40])
@pytest.mark.parametrize(
    "pattern",
    [
        Full(),
        Block(4),
        BlockGlobal(4, 2),
        Local(3),
        Overlap(4),
        Staggered(4, 3).at(0),
        Staggered(4, 3).at(1),
        Window(4),
        Span(3, 0),
        Span(1, 4),
    ],
)
def test_operations_are_those_of_the_dense_mask(pattern, length):
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())


@pytest.mark.parametrize("length", [24, 25, 29])
@pytest.mark.parametrize(
    "pattern", [Block(8), BlockGlobal(8, 2), Overlap(8), Staggered(8, 2).at(0), Staggered(8, 2).at(1)]
)
def test_takes_the_fast_kernel(pattern, length):
    q, k, v = torch.randn(2, pattern.extra_tokens + length, 3, HEADS, WIDTH, requires_grad=True).unbind(2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        pattern.attend(q, k, v, Context()).sum().backward()
        pattern.attend(q, k, v, make_context(right_padded([length, 9], length))).sum().backward()


@pytest.mark.parametrize(
    ("pattern", "fields", "message"),
    [
        (Block, {"size": 0}, "size is 0"),
        (BlockGlobal, {"size": 8, "global_tokens": 0}, "global_tokens is 0 with size 8"),
        (BlockGlobal, {"size": 8, "global_tokens": 8}, "global_tokens is 8 with size 8"),
        *((Overlap, {"size": size}, f"overlap: size is {size}; it must be even") for size in (0, 1, 7)),
        *((kind, {"radius": radius}, f"radius is {radius}") for kind in (Local, TGlobal) for radius in (0, 10**30)),
        (TGlobal, {"block": 0}, "block is 0"),
        *((Window, {"size": size}, "attention pattern window: size") for size in (0, 7, -2, (4, 3), ())),
        (Span, {"left": -1}, "left is -1 and right is 256"),
        (Layered, {"every": 0}, "full is -1 and every is 0"),
        (Layered, {"every": 3, "full": 3}, "full is 3 and every is 3"),
        (Layered, {"causal": True}, "causal is true, but right is 256"),
        (Staggered, {"size": 0}, "size is 0"),
        (Staggered, {"global_tokens": 0}, "global_tokens is 0"),
        (Staggered, {"size": 7}, "size is 7, which is odd"),
    ],
)
def test_impossible_sizes_are_refused(pattern, fields, message):
    with pytest.raises(FarspanError, match=message):
        pattern(**fields)


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


def test_the_first_tokens_of_every_block_are_global():
    seen = dense_mask(BlockGlobal(4, 2), 11)
    everything = list(range(11))
    rows = [row.nonzero().flatten().tolist() for row in seen]
    assert [place for place in everything if rows[place] == everything] == [0, 1, 4, 5, 8, 9]
    assert rows[2] == rows[3] == [0, 1, 2, 3, 4, 5, 8, 9]
    assert rows[10] == [0, 1, 4, 5, 8, 9, 10]


def test_sees_half_of_each_neighbour():
    seen = dense_mask(Overlap(4), 12)
    assert [row.nonzero().flatten().tolist() for row in seen[[0, 3, 4, 7, 11]]] == [
        [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 8, 9], [2, 3, 4, 5, 6, 7, 8, 9],
        [6, 7, 8, 9, 10, 11],
    ]  # fmt: skip


@pytest.mark.parametrize("layer", [0, 1])
def test_nothing_is_masked_where_nothing_is_padded(layer):
    pattern = Staggered(4, 2).at(layer)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 13, HEADS, WIDTH)
    whole = make_context(torch.ones(2, 11, dtype=torch.bool))
    torch.testing.assert_close(pattern.attend(q, k, v, Context()), pattern.attend(q, k, v, whole), atol=1e-6, rtol=0)


def test_blocks_of_odd_layers_begin_half_a_block_later():
    def blocks(layer: int) -> list[int]:
        seen = dense_mask(Staggered(4, 1).at(layer), 11)[1:, 1:]
        return [int(row.nonzero()[0]) for row in seen]  # where the block of every position begins

    assert blocks(0) == blocks(2) == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert blocks(1) == blocks(3) == [0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 10]
    assert all(not Staggered(5, 1, staggered=False).at(layer).shifted for layer in range(4))


def test_learned_tokens_see_and_are_seen_by_all():
    seen = dense_mask(Staggered(4, 2).at(1), 9)
    assert seen[:2].all()
    assert seen[:, :2].all()
