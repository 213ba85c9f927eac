"""Norms, residual sums, feed-forward layers and embeddings against their formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from corpora.errors import FarspanError
from trainer.model.layers.sublayers import (
    ACTIVATIONS,
    EmbeddingConfig,
    Embeddings,
    FeedForward,
    FeedForwardConfig,
    NormConfig,
    Residual,
    SplitNorm,
    make_last_norm,
    make_norm,
)
from trainer.model.positions import Learned, Rotary


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FeedForwardConfig(width=0), "model.feed_forward.width is 0"),
        (lambda: NormConfig(eps=0.0), "model.norm.eps is 0.0"),
        (lambda: NormConfig(eps=math.nan), "model.norm.eps is nan"),
    ],
)
def test_bad_parts_are_refused(make, said):
    with pytest.raises(FarspanError, match=said):
        make()


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_a_norm_is_its_formula(kind):
    norm = make_norm(6, NormConfig(kind=kind, eps=0.1))
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(4, 6)
    centred = x - x.mean(-1, keepdim=True) if kind == "layer" else x
    expected = norm.weight * centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
    torch.testing.assert_close(norm(x), expected + norm.bias if kind == "layer" else expected)


def test_only_sums_that_no_norm_has_seen_are_normalised_at_the_end():
    assert isinstance(make_last_norm(6, NormConfig(placement="post")), nn.Identity)
    assert isinstance(make_last_norm(6, NormConfig(placement="pre", kind="rms")), nn.RMSNorm)


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("extra", [None, 2])
def test_a_residual_sum_is_normalised_before_or_after_the_sublayer(placement, extra):
    """With a norm of their own for the first positions, if they are learned tokens."""
    residual = Residual(6, NormConfig(placement=placement), 0.0, split=extra is not None)
    for parameter in residual.parameters():
        nn.init.normal_(parameter)
    norms = [] if extra is None else [extra]
    x, matrix = torch.randn(3, 5, 6), torch.randn(6, 6)
    found = residual(x, lambda h: h @ matrix, *norms)
    before, after = x + residual.norm(x, *norms) @ matrix, residual.norm(x + x @ matrix, *norms)
    torch.testing.assert_close(found, before if placement == "pre" else after)


def test_learned_tokens_have_a_norm_of_their_own():
    norm = SplitNorm(6, NormConfig())
    nn.init.constant_(norm.extra.weight, 3.0)
    x = torch.randn(2, 5, 6)
    plain = nn.functional.layer_norm(x, (6,))
    torch.testing.assert_close(norm(x, 2), torch.cat([3 * plain[:, :2], plain[:, 2:]], 1))
    torch.testing.assert_close(norm(x, 0), plain)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gated", [False, True])
def test_a_feed_forward_layer_is_its_formula(activation, gated):
    layer = FeedForward(6, FeedForwardConfig(width=9, activation=activation, gated=gated), 0.0)
    x = torch.randn(2, 6)
    inner = ACTIVATIONS[activation](x @ layer.up.weight.T + layer.up.bias)
    if gated:
        inner = inner * (x @ layer.gate.weight.T + layer.gate.bias)
    torch.testing.assert_close(layer(x), inner @ layer.down.weight.T + layer.down.bias)
    assert {"gate.weight"} <= dict(layer.named_parameters()).keys() if gated else layer.gate is None


def test_a_feed_forward_layer_may_have_no_biases():
    layer = FeedForward(6, FeedForwardConfig(width=9, gated=True, bias=False), 0.0)
    assert all(parameter.dim() == 2 for parameter in layer.parameters())


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("positions", [Learned(8), Rotary()], ids=["learned", "rotary"])
def test_vectors_are_scaled_before_positions_are_added_and_the_sum_is_normalised(scaled, norm, positions):
    embeddings = Embeddings(6, EmbeddingConfig(scaled=scaled, norm=norm), positions, NormConfig(), 0.0)
    x = torch.randn(2, 5, 6)
    expected = x * 6**0.5 if scaled else x
    if isinstance(positions, Learned):
        nn.init.normal_(embeddings.positions.weight)
        expected = expected + embeddings.positions.weight[:5]
    else:
        assert embeddings.positions is None  # attention turns queries and keys instead
    torch.testing.assert_close(embeddings(x), nn.functional.layer_norm(expected, (6,)) if norm else expected)
