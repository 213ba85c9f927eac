"""Tests of attention in bands, and in chunks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import HEADS, WIDTH, cut, dense, right_padded
from trainer.model.context import make_context
from trainer.model.kernels import chunks
from trainer.model.kernels.banded import Sides, attend_banded, banded_attention
from trainer.model.kernels.chunks import NOBODY, Inputs
from trainer.model.patterns.tglobal import TGlobal


def test_the_operator_is_one_that_a_compiler_can_take():
    q, k, v = torch.randn(2, 9, HEADS, WIDTH), *torch.randn(2, 2, 11, HEADS, WIDTH)
    inputs = [x.requires_grad_() for x in (q, k, v, torch.randn(HEADS, 7), torch.randn(HEADS, 3))]
    torch.library.opcheck(banded_attention, (*inputs, None, None, None, 4, 1.0, 0.0))
    documents = torch.zeros(2, 11, dtype=torch.int64)
    torch.library.opcheck(banded_attention, (*inputs, documents[:, :9], documents, torch.tensor(5), 4, 1.0, 0.3))


@settings(max_examples=25, deadline=None)
@given(
    radius=st.integers(1, 6),
    sides=st.booleans(),
    lengths=st.lists(st.integers(0, 17), min_size=1, max_size=3),
    packed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_band_and_side_keys_are_attended_to_as_under_their_whole_mask(radius, sides, lengths, packed, seed):
    torch.manual_seed(seed)
    length, block = 17, 5
    count = length // block if sides else 0
    real = right_padded(lengths, length)
    documents = cut(real, seed) if packed else torch.zeros(real.shape, dtype=torch.int64)
    owners = torch.randint(-1, 2, (len(lengths), count)) if sides else None
    q = torch.randn(len(lengths), length, HEADS, WIDTH, requires_grad=True)
    k, v = torch.randn(2, len(lengths), length + count, HEADS, WIDTH).requires_grad_().unbind(0)
    near, far = torch.randn(HEADS, 2 * radius + 1), torch.randn(HEADS, max(1, 2 * count - 1))
    biases = (near.requires_grad_(), *([far.requires_grad_()] if sides else []))
    context = make_context(real, documents if packed else None)._replace(biases=biases)
    known = Sides(block, owners.masked_fill(owners < 0, NOBODY)) if sides else None
    found = attend_banded(q, k, v, context, radius, known)

    places = torch.arange(length)
    offset = places - places[:, None]  # (L, L)
    mask = (offset.abs() <= radius) & real[:, None] & (documents[:, :, None] == documents[:, None])
    bias = near[:, offset.clamp(-radius, radius) + radius]
    if sides:
        mask = torch.cat([mask, documents[:, :, None] == owners[:, None].masked_fill(owners[:, None] < 0, -9)], 2)
        distance = torch.arange(count) - (places // block).clamp(max=count - 1)[:, None]
        bias = torch.cat([bias, far[:, distance + count - 1]], 2)
    expected = dense(q, k, v, mask, bias)
    torch.testing.assert_close(found[real], expected[real].float(), atol=1e-5, rtol=0)
    upstream = torch.randn_like(found) * real[..., None, None]
    inputs = (q, k, v, *biases)
    mine = torch.autograd.grad(found, inputs, upstream)
    theirs = torch.autograd.grad(expected, inputs, upstream.double(), materialize_grads=True, allow_unused=True)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other.float(), atol=1e-5, rtol=1e-5)


def test_dropout_is_drawn_anew_by_the_seed_of_torch():
    q, k, v = torch.randn(3, 1, 9, HEADS, WIDTH)
    torch.manual_seed(3)
    one, other = (attend_banded(q, k, v, make_context(), 4, dropout=0.5) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(attend_banded(q, k, v, make_context(), 4, dropout=0.5), one)
    assert not torch.equal(one, other)


LENGTH, CHUNK_HEADS, CHUNK_WIDTH = 60, 2, 4

PATTERN = TGlobal(radius=5, block=4)


def learned(packed):
    torch.manual_seed(0)
    real = right_padded([LENGTH, 33], LENGTH)
    sides = LENGTH // PATTERN.block
    x = torch.randn(2, LENGTH + sides, 3, CHUNK_HEADS, CHUNK_WIDTH, dtype=torch.float64, requires_grad=True)
    near, far = (torch.randn(CHUNK_HEADS, len(part), dtype=torch.float64) for part in PATTERN.offsets(LENGTH))
    biases = tuple(part.requires_grad_() for part in (near, far))
    context = make_context(real, cut(real, 3) if packed else None)._replace(biases=biases)
    q, k, v = x.unbind(2)
    mixed = PATTERN.attend(q[:, :LENGTH], k, v, context)
    return mixed.detach(), *torch.autograd.grad(mixed.square().sum(), [x, *biases])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("least", [17, 1024])
def test_larger_chunks_give_the_same(monkeypatch, least, packed):
    expected = learned(packed)
    monkeypatch.setattr(chunks, "LEAST", {"cpu": least})
    torch.testing.assert_close(learned(packed), expected)


def test_a_gpu_gets_few_of_them():
    """Windows of 127, as LongT5 has them: as many loops as chunks, for every layer."""
    shapes = ((1, 4096, 1, 1), (1, 4352, 1, 1), (1, 4352, 1, 1), (1, 255), (1, 511))
    sizes = {}
    for device in ("cpu", "cuda"):
        with torch._subclasses.FakeTensorMode():
            tensors = [torch.empty(shape, device=device) for shape in shapes]
            sizes[device] = Inputs(*tensors, None, None, None, 16, 1.0, 0.0).size
    assert sizes == {"cpu": 128, "cuda": 1024}
