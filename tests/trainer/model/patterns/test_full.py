"""Full attention against its dense statement."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import (
    WIDTH,
    assert_equals_dense,
    cut,
    dense_mask,
    right_padded,
)
from trainer.model.patterns.full import Full


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
def test_operations_are_those_of_the_dense_mask(length):
    assert Full().flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(Full(), length).sum())
