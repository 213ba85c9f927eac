"""Patterns against their dense statements, what each lets a position see, and what all have in common."""

from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any, get_args, get_type_hints

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_config
from tests.trainer.model.dense import HEADS, WIDTH, assert_equals_dense, cut, dense, dense_mask, right_padded, seen_by
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig
from trainer.model.context import Context, make_context
from trainer.model.layers.attention import Causal, attend, mask_other_documents
from trainer.model.layers.heads import HeadsConfig
from trainer.model.pattern import Pattern
from trainer.model.patterns import (
    BigBird,
    Block,
    BlockGlobal,
    Full,
    Layered,
    Local,
    Overlap,
    Span,
    Staggered,
    TGlobal,
    Window,
)
from trainer.model.patterns.window import WindowAttention
from trainer.model.positions import Learned, Rotary, rotate, tile_positions

PATTERNS = {
    "bigbird": st.builds(
        lambda size, random, layer: BigBird(size, random).at(layer),
        size=st.integers(1, 4),
        random=st.integers(0, 2),
        layer=st.integers(0, 3),
    ),
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
        *(Full(), Causal(), Block(4), BlockGlobal(4, 2), Local(3), Overlap(4), Window(4), Span(3, 0), Span(1, 4)),
        *(Staggered(4, 3).at(0), Staggered(4, 3).at(1), BigBird(2, 1).at(3)),
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
        (BigBird, {"random": -1}, "size is 64 and random is -1"),
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


def test_a_query_repeated_in_every_block_needs_nothing_of_the_model():
    """Question answering as BART-LS does it: blocks are ``query chunk``, each encoded as if alone."""
    config = tiny_config(EncoderConfig(layers=2, positions=Learned(24), attention=Block(8)), decoder=False)
    model: Any = build_model(config, 40, seed=0).eval()
    positions = model.encoder.embedded.positions.weight
    positions.data = tile_positions(positions.data[:8], 24)  # as in a model that was made from a short one
    ids = torch.cat([torch.tensor([[7, 9, 2]]).expand(3, -1), torch.randint(0, 40, (3, 5))], 1)  # query, chunk
    real = right_padded([8, 8, 6], 8)
    together = model.encode(ids.reshape(1, 24), real.reshape(1, 24))
    torch.testing.assert_close(together.reshape(3, 8, -1)[real], model.encode(ids, real)[real], atol=1e-6, rtol=0)


def test_random_blocks_are_others_of_their_own_in_every_layer():
    seen = [dense_mask(BigBird(1, 2).at(layer), 24) for layer in range(6)]
    assert len({tuple(mask.flatten().tolist()) for mask in seen}) == 6
    assert all(torch.equal(mask, dense_mask(BigBird(1, 2).at(layer), 24)) for layer, mask in enumerate(seen))
    for mask in seen:
        assert mask[[0, -1]].all()
        assert mask[:, [0, -1]].all()
        assert mask[2:-2].sum(1).eq(5 + 2).all()  # three neighbours, two global, two random blocks
        assert mask[[1, -2]].sum(1).eq(4 + 2).all()
    assert dense_mask(BigBird(1, 2), 9).all()  # as many as Hugging Face's class attends to fully
    with pytest.raises(FarspanError, match="index is 3"):
        EncoderConfig(layers=4, positions=Learned(8), attention=BigBird(index=3))


KINDS = get_args(get_type_hints(EncoderConfig)["attention"])


@dataclass(frozen=True)
class Parity(Pattern):
    """Even positions attend to even ones, odd ones to odd ones."""

    pattern: str = "parity"

    def attend(self, q, k, v, context, dropout=0.0, scale=None):
        places = torch.arange(q.shape[1])
        seen = self.mask_mod(places[:, None], places, q.shape[1])
        known = mask_other_documents(context.padding_mask, context.segments, context.segments)
        return attend(q, k, v, seen[None] if known is None else seen & known, dropout=dropout, scale=scale)

    def mask_mod(self, query, key, length):
        return query % 2 == key % 2

    def flops(self, length, width):
        return 2 * length * length * width


@pytest.mark.parametrize("packed", [False, True])
def test_a_pattern_of_ones_own_needs_the_abstract_methods_alone(packed):
    segments = torch.tensor([[0] * 4 + [1] * 5, [0] * 9]) if packed else None
    assert_equals_dense(Parity(), 9, [9, 6], 0, segments)
    encoder = EncoderConfig(layers=2, positions=Learned(16))
    object.__setattr__(encoder, "attention", Parity())  # recipes know the patterns of the package
    model = build_model(replace(tiny_config(), encoder=encoder), 24, seed=0)
    ids = torch.arange(9)[None]
    before = model.encode(ids).states
    ids[0, 4] = 20
    changed = (model.encode(ids).states != before).any(-1)[0]
    assert changed.tolist() == [True, False] * 4 + [True]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_pattern_is_a_frozen_table_of_a_recipe_with_a_name_of_its_own(kind):
    pattern = kind()
    (name,) = get_args(get_type_hints(kind)["pattern"])
    assert pattern.pattern == name
    assert [other.pattern for other in KINDS].count(name) == 1
    with pytest.raises(FrozenInstanceError):
        setattr(pattern, fields(pattern)[0].name, None)
    assert replace(pattern) == pattern
    assert hash(replace(pattern)) == hash(pattern)


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
    mixed = dense(*(*heads(layer.qkv), near)).float()
    far = dense(*(*heads(layer.global_qkv), everything)).float()
    return layer.out(torch.where(chosen[..., None, None], far, mixed).flatten(2))


@settings(max_examples=80, deadline=None)
@given(
    pattern=PATTERNS["window"],
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


def test_without_global_positions_their_projections_do_nothing():
    layer = WindowAttention(WIDTH, HeadsConfig(count=HEADS), Window(4), 0.0)
    x, nowhere = torch.randn(2, 11, WIDTH), torch.zeros(2, 11, dtype=torch.bool)
    got = layer(x, make_context(None, None, nowhere))
    assert torch.equal(got, layer(x, Context()))
    got.sum().backward()
    assert layer.global_qkv.weight.grad is None


def test_a_window_takes_the_fast_kernel():
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
