"""Full and causal attention against their dense statements."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import (
    HEADS,
    WIDTH,
    assert_equals_dense,
    cut,
    dense,
    dense_mask,
    right_padded,
)
from trainer.model.context import Context
from trainer.model.layers.causal import Causal
from trainer.model.patterns.full import Full
from trainer.model.positions.relative import Buckets, RelativeBias


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(1, 12),
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    seed=st.integers(0, 100),
    packed=st.booleans(),
    relative=st.booleans(),
)
def test_equals_its_dense_mask_forward_and_backward(length, lengths, seed, packed, relative):
    segments = cut(right_padded(lengths, length), seed) if packed else None
    assert_equals_dense(Full(), length, lengths, seed, segments, relative)


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


@pytest.mark.parametrize("pattern", [Full(), Causal()])
@pytest.mark.parametrize("length", [1, 7])
def test_operations_are_those_of_the_dense_mask(pattern, length):
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())
