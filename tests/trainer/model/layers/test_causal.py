"""Causal attention against its dense statement."""

from __future__ import annotations

import pytest
import torch

from tests.trainer.model.dense import (
    HEADS,
    WIDTH,
    dense,
    dense_mask,
)
from trainer.model.context import Context
from trainer.model.layers.attention import Causal
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig
from trainer.model.positions import Buckets, RelativeBias


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


@pytest.mark.parametrize("length", [1, 7])
def test_operations_are_those_of_the_dense_mask(length):
    assert Causal().flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(Causal(), length).sum())


def test_what_comes_later_changes_nothing():
    """Nor does padding, which is later in every row."""
    q, k, v = torch.randn(3, 1, 9, HEADS, WIDTH)
    before = Causal().attend(q, k, v, Context())[:, :5]
    for x in (q, k, v):
        x[:, 5:] = 1e6
    torch.testing.assert_close(Causal().attend(q, k, v, Context())[:, :5], before, atol=1e-6, rtol=0)


def test_its_layer_attends_with_it():
    layer = Causal().layer(HEADS * WIDTH, HeadsConfig(count=HEADS), NormConfig(), 0.0)
    x = torch.randn(2, 6, HEADS * WIDTH, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x, Context())[:, 2].sum(), x)
    assert (gradient[:, 3:] == 0).all()
    assert (gradient[:, :3] != 0).any(-1).all()
