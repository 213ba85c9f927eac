"""Rotary positions against complex numbers, and what they are for: only differences of positions count."""

from __future__ import annotations

import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, dense, right_padded, seen_by
from trainer.model.context import make_context
from trainer.model.layers.attention import SelfAttention
from trainer.model.layers.heads import HeadsConfig
from trainer.model.patterns.block import Block
from trainer.model.patterns.block_global import BlockGlobal
from trainer.model.patterns.full import Full
from trainer.model.patterns.overlap import Overlap
from trainer.model.positions.rotary import Rotary, rotate

CPU = torch.device("cpu")


def turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """``(B, L, H, D)``, dimensions i and i + D / 2 as one complex number that is multiplied by e^(i angle)."""
    length, width = x.shape[1], x.shape[3]
    pairs = torch.complex(*x.double().chunk(2, -1))
    angles = torch.outer(torch.arange(length).double(), theta ** (-torch.arange(width // 2).double() * 2 / width))
    pairs = pairs * torch.exp(1j * angles)[:, None, :]
    return torch.cat([pairs.real, pairs.imag], -1)


@pytest.mark.parametrize("theta", [10_000.0, 500.0])
@pytest.mark.parametrize("length", [1, 40])
def test_equals_a_product_of_complex_numbers(theta, length):
    x = torch.randn(2, length, HEADS, WIDTH)
    got = rotate(x, Rotary(theta).rotation(length, WIDTH, CPU))
    torch.testing.assert_close(got, turned(x, theta).float(), atol=1e-5, rtol=0)


def test_scores_depend_on_differences_of_positions_only():
    q, k = torch.randn(2, WIDTH)
    rotation = Rotary().rotation(30, WIDTH, CPU)
    queries, keys = (rotate(x.expand(1, 30, 1, WIDTH), rotation)[0, :, 0] for x in (q, k))
    scores = queries @ keys.T  # (30, 30)
    for offset in range(-29, 30):
        diagonal = scores.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=0)
    assert scores[0].std() > 0.1


def test_tokens_before_the_sequence_stay_as_they_are():
    x = torch.randn(2, 3 + 7, HEADS, WIDTH)
    rotation = Rotary().rotation(7, WIDTH, CPU)
    assert torch.equal(rotate(x, rotation)[:, :3], x[:, :3])
    assert torch.equal(rotate(x, rotation)[:, 3:], rotate(x[:, 3:], rotation))
    assert rotate(x, None) is x


@pytest.mark.parametrize("pattern", [Full(), Block(4), Overlap(4), BlockGlobal(4, 1)], ids=lambda p: p.pattern)
def test_a_layer_turns_queries_and_keys_within_any_pattern(pattern):
    length, width = 11, HEADS * WIDTH
    layer = SelfAttention(width, HeadsConfig(count=HEADS), pattern, 0.0)
    x, real = torch.randn(2, length, width), right_padded([11, 6], length)
    context = make_context(real)._replace(rotation=Rotary(100.0).rotation(length, WIDTH, CPU))
    q, k, v = layer.qkv(x).unflatten(-1, (3, HEADS, WIDTH)).unbind(2)
    mixed = dense(turned(q, 100.0), turned(k, 100.0), v, seen_by(pattern, real))
    expected = layer.out(mixed.float().flatten(2))
    torch.testing.assert_close(layer(x, context)[real], expected[real], atol=1e-5, rtol=0)
    without = layer(x, context._replace(rotation=None))
    assert not torch.allclose(without[real], expected[real], atol=1e-3)


@pytest.mark.parametrize("theta", [1.0, 0.0, -3.0])
def test_a_base_that_does_not_slow_down_is_refused(theta):
    with pytest.raises(FarspanError, match=f"theta is {theta}"):
        Rotary(theta)
