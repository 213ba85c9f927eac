"""Blocks with global tokens against their dense statement."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, assert_equals_dense, cut, dense_mask, right_padded
from trainer.model.context import Context, make_context
from trainer.model.patterns.block_global import BlockGlobal

PATTERNS = st.integers(2, 8).flatmap(lambda size: st.builds(BlockGlobal, st.just(size), st.integers(1, size - 1)))


@settings(max_examples=80, deadline=None)
@given(
    pattern=PATTERNS,
    length=st.integers(1, 31),
    lengths=st.lists(st.integers(0, 31), min_size=1, max_size=3),
    seed=st.integers(0, 100),
    packed=st.booleans(),
)
def test_equals_its_dense_mask_forward_and_backward(pattern, length, lengths, seed, packed):
    segments = cut(right_padded(lengths, length), seed) if packed else None
    assert_equals_dense(pattern, length, lengths, seed, segments)


def test_the_first_tokens_of_every_block_are_global():
    seen = dense_mask(BlockGlobal(4, 2), 11)
    everything = list(range(11))
    rows = [row.nonzero().flatten().tolist() for row in seen]
    assert [place for place in everything if rows[place] == everything] == [0, 1, 4, 5, 8, 9]
    assert rows[2] == rows[3] == [0, 1, 2, 3, 4, 5, 8, 9]
    assert rows[10] == [0, 1, 4, 5, 8, 9, 10]


@pytest.mark.parametrize("length", [24, 25, 29])
def test_takes_the_fast_kernel(length):
    q, k, v = torch.randn(2, length, 3, HEADS, WIDTH, requires_grad=True).unbind(2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        BlockGlobal(8, 2).attend(q, k, v, Context()).sum().backward()
        BlockGlobal(8, 2).attend(q, k, v, make_context(right_padded([length, 9], length))).sum().backward()


@pytest.mark.parametrize("length", [1, 2, 4, 5, 8, 11, 16, 18])
def test_operations_are_those_of_the_dense_mask(length):
    pattern = BlockGlobal(4, 2)
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())


@pytest.mark.parametrize("global_tokens", [0, 8])
def test_blocks_without_globals_or_others_are_refused(global_tokens):
    with pytest.raises(FarspanError, match=f"global_tokens is {global_tokens} with size 8"):
        BlockGlobal(8, global_tokens)
