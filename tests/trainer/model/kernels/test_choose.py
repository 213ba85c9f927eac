"""Tests of the choice of kernels, and of their saved results."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.model.dense import HEADS, WIDTH, cut, right_padded
from tests.trainer.model.kernels.emulation import loop
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig, ModelConfig
from trainer.model.context import Context, make_context
from trainer.model.kernels import choose, flex, varlen
from trainer.model.kernels.choose import attend_across, attend_within, can_fuse, plan_within
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.pooled import Pooling
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.patterns.overlap import Overlap
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned
from trainer.parallel.wrapping import apply_activation_checkpointing

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
    config = ModelConfig(
        width=16,
        heads=HeadsConfig(count=2),
        feed_forward=FeedForwardConfig(width=8),
        encoder=EncoderConfig(
            layers=2, positions=Learned(32), attention=pattern, pooling=None if own_tokens else pooling
        ),
        decoder=DecoderConfig(layers=2, positions=Learned(8), global_cross_attention=own_tokens),
        dropout=0.0,
        init_std=0.3,
    )
    return build_model(config, 20, seed=0)


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


def dense(q, k, v, score_mod, block_mask, scale):
    """FlexAttention's result, with a backward pass on a CPU."""
    places = [torch.arange(n) for n in (len(q), q.shape[1], q.shape[2], k.shape[2])]
    b, h, i, j = (place.view([-1 if at == axis else 1 for at in range(4)]) for axis, place in enumerate(places))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, block_mask.mask_mod(b, h, i, j), scale=scale)


@pytest.mark.parametrize("mode", ["none", "layer", "selective"])
def test_flex_attention_runs_once_where_its_result_is_kept(monkeypatch, mode):
    config = ModelConfig(
        width=32, heads=HeadsConfig(count=2), feed_forward=FeedForwardConfig(width=8), dropout=0.0, init_std=0.3,
        encoder=EncoderConfig(layers=3, positions=Learned(32), attention=Window(4)),
        decoder=DecoderConfig(layers=1, positions=Learned(8)),
    )  # fmt: skip
    model, calls = build_model(config, 20, seed=0), []

    def kernel(*given, **named):
        calls.append(1)
        return dense(*given, **named)

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
    monkeypatch.setattr(choose.varlen, "AVAILABLE", False)
    monkeypatch.setattr(flex, "flex_attention", kernel)
    apply_activation_checkpointing(model, mode)
    got = learned()
    assert len(calls) == (6 if mode == "layer" else 3)
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-3)
    calls.clear()
    learned()  # nothing is left over for the next step
    assert len(calls) == (6 if mode == "layer" else 3)
