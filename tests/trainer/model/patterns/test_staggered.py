"""PEGASUS-X's attention against its dense statement; what it costs; what it refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from corpora.errors import FarspanError
from tests.trainer.model.dense import HEADS, WIDTH, assert_equals_dense, cut, dense_mask, right_padded
from trainer.model.context import Context, make_context
from trainer.model.patterns.staggered import Staggered

PATTERNS = st.builds(
    lambda half, extra, layer: Staggered(2 * half, extra).at(layer),
    half=st.integers(1, 5),
    extra=st.integers(1, 3),
    layer=st.integers(0, 1),
)


@settings(max_examples=60, deadline=None)
@given(
    pattern=PATTERNS,
    length=st.integers(1, 23),
    lengths=st.lists(st.integers(0, 23), min_size=1, max_size=3),
    packed=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_its_dense_statement_forward_and_backward(pattern, length, lengths, packed, seed):
    segments = cut(torch.ones(len(lengths), length, dtype=torch.bool), seed) if packed else None
    assert_equals_dense(pattern, length, lengths, seed, segments)


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


@pytest.mark.parametrize("layer", [0, 1])
def test_takes_the_fast_kernel(layer):
    q, k, v = torch.randn(2, 26, 3, HEADS, WIDTH, requires_grad=True).unbind(2)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        Staggered(8, 2).at(layer).attend(q, k, v, Context()).sum().backward()
        Staggered(8, 2).at(layer).attend(q, k, v, make_context(right_padded([24, 9], 24))).sum().backward()


@pytest.mark.parametrize("length", [1, 2, 3, 8, 11, 16])
@pytest.mark.parametrize("layer", [0, 1])
def test_operations_are_those_of_the_dense_mask(length, layer):
    pattern = Staggered(4, 3).at(layer)
    assert pattern.flops(length, WIDTH) == 4 * WIDTH * int(dense_mask(pattern, length).sum())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"global_tokens": 0}, "global_tokens is 0"),
        ({"size": 7}, "size is 7, which is odd"),
    ],
)
def test_impossible_sizes_are_refused(fields, message):
    with pytest.raises(FarspanError, match=message):
        Staggered(**fields)
