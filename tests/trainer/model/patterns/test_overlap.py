"""Overlapping blocks against their dense statement."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, assert_equals_dense, cut, dense_mask, right_padded
from trainer.model.context import Context, make_context
from trainer.model.patterns.overlap import Overlap


@settings(max_examples=80, deadline=None)
@given(
    pattern=st.builds(Overlap, size=st.sampled_from([2, 4, 6, 8])),
    length=st.integers(1, 31),
    lengths=st.lists(st.integers(0, 31), min_size=1, max_size=3),
    seed=st.integers(0, 100),
    packed=st.booleans(),
    relative=st.booleans(),
)
def test_equals_its_dense_mask_forward_and_backward(pattern, length, lengths, seed, packed, relative):
    segments = cut(right_padded(lengths, length), seed) if packed else None
    assert_equals_dense(pattern, length, lengths, seed, segments, relative)


def test_sees_half_of_each_neighbour():
    seen = dense_mask(Overlap(4), 12)
    assert [row.nonzero().flatten().tolist() for row in seen[[0, 3, 4, 7, 11]]] == [
        [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 8, 9], [2, 3, 4, 5, 6, 7, 8, 9],
        [6, 7, 8, 9, 10, 11],
    ]  # fmt: skip


@pytest.mark.parametrize("length", [24, 29])
def test_takes_the_fast_kernel(length):
    q, k, v = torch.randn(2, length, 3, HEADS, WIDTH, requires_grad=True).unbind(2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        Overlap(8).attend(q, k, v, Context()).sum().backward()
        Overlap(8).attend(q, k, v, make_context(right_padded([length, 9], length))).sum().backward()


@pytest.mark.parametrize("length", [1, 4, 5, 6, 8, 11, 16, 18])
def test_operations_are_those_of_the_dense_mask(length):
    pattern = Overlap(4)
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())


@pytest.mark.parametrize("size", [0, 1, 7])
def test_blocks_without_halves_are_refused(size):
    with pytest.raises(FarspanError, match=f"overlap: size is {size}; it must be even"):
        Overlap(size)
