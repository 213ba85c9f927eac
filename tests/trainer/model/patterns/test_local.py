"""Local against its dense statement, with and without relative positions, padding and documents."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from tests.trainer.model.dense import assert_equals_dense, cut, dense_mask, right_padded, saved_by
from trainer.model.context import make_context
from trainer.model.patterns.local import Local
from trainer.model.patterns.tglobal import TGlobal


@settings(max_examples=60, deadline=None)
@given(
    radius=st.integers(1, 9),
    length=st.integers(1, 30),
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    relative=st.booleans(),
    packed=st.booleans(),
    seed=st.integers(0, 100),
)
def test_local_equals_its_dense_mask(radius, length, lengths, relative, packed, seed):
    segments = cut(torch.ones(len(lengths), length, dtype=torch.bool), seed) if packed else None
    assert_equals_dense(Local(radius), length, lengths, seed, segments, relative)


@pytest.mark.parametrize("length", [1, 3, 4, 5, 40])
def test_flops_count_the_pairs_of_the_dense_mask(length):
    assert Local(3).flops(length, 8) == 4 * 8 * int(dense_mask(Local(3), length).sum())


@pytest.mark.parametrize("length", [2, 40])
def test_no_scores_are_saved(length):
    assert saved_by(Local(3), length, 2, 8) == 2 * (2 * 3 + 2)  # the biases


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_with_padding_stays_finite(kind):
    q, k, v = (30 * torch.randn(3, 2, 20, 2, 8)).to(kind).requires_grad_().unbind(0)
    mixed = Local(3).attend(q, k, v, make_context(right_padded([11, 0], 20)), scale=1.0)
    assert mixed.dtype == kind
    for x in (mixed, *torch.autograd.grad(mixed, (q, k, v), torch.ones_like(mixed))):
        assert x.isfinite().all()


def test_dropout_is_the_same_forward_and_backward_and_leaves_the_mean():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 9, 2, 4, dtype=torch.float64).requires_grad_().unbind(0)

    def attend(q, k, v):
        torch.manual_seed(1)
        return Local(2).attend(q, k, v, make_context(), dropout=0.3)

    assert torch.autograd.gradcheck(attend, (q, k, v))
    whole = Local(2).attend(q, k, v, make_context())
    assert not torch.equal(attend(q, k, v), whole)
    mean = torch.stack([Local(2).attend(q, k, v, make_context(), dropout=0.3) for _ in range(1500)]).mean(0)
    torch.testing.assert_close(mean, whole, atol=0.1, rtol=0)


@pytest.mark.parametrize("radius", [0, 10**30])
def test_window_of_nothing_or_beyond_memory_is_refused(radius):
    for pattern in (Local, TGlobal):
        with pytest.raises(FarspanError, match=f"radius is {radius}"):
            pattern(radius)
