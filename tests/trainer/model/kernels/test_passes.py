"""Passes over whole rows give the results of chunks; tested on a CPU, although only GPUs use them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.model.dense import cut, right_padded
from trainer.model.context import make_context
from trainer.model.kernels import passes
from trainer.model.patterns.local import Local
from trainer.model.patterns.tglobal import TGlobal

HEADS, WIDTH = 2, 4


def learned(pattern, length, real, documents, dropout, kind=torch.float64):
    """The result and all gradients."""
    torch.manual_seed(1)
    offsets = pattern.offsets(length)
    sides = length // pattern.block if len(offsets) > 1 else 0
    x = torch.randn(2, length + sides, 3, HEADS, WIDTH, dtype=kind, requires_grad=True)
    biases = tuple(torch.randn(HEADS, len(part), dtype=kind, requires_grad=True) for part in offsets)
    context = make_context(real, documents)._replace(biases=biases)
    q, k, v = x.unbind(2)
    mixed = pattern.attend(q[:, :length], k, v, context, dropout)
    upstream = torch.linspace(-1, 2, mixed.numel(), dtype=kind).view_as(mixed)
    return mixed.detach(), *torch.autograd.grad((mixed * upstream).sum(), [x, *biases])


def in_passes(*arguments, most=passes.MOST_SCORES):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "DEVICES", {"cpu"})
        patch.setattr(passes, "MOST_SCORES", most)
        return learned(*arguments)


@settings(max_examples=60, deadline=None)
@given(
    pattern=st.one_of(
        st.builds(Local, radius=st.integers(1, 7)),
        st.builds(TGlobal, radius=st.integers(1, 7), block=st.integers(1, 5)),
    ),
    length=st.integers(1, 40),
    shorter=st.integers(0, 40),
    padded=st.booleans(),
    packed=st.booleans(),
)
def test_equal_to_chunks_forward_and_backward(pattern, length, shorter, padded, packed):
    real = right_padded([length, min(shorter, length)], length)
    documents = cut(real, length) if packed else None
    arguments = pattern, length, real if padded else None, documents, 0.0
    for found, expected in zip(in_passes(*arguments), learned(*arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_rows_that_do_not_fit_one_pass_have_passes_of_their_own(monkeypatch):
    pattern, real = TGlobal(3, 2), right_padded([20, 11], 20)
    arguments = pattern, 20, real, None, 0.0
    row = HEADS * 20 * (4 + 2 * 3 + 10)
    seen, attend = [], passes.attend
    monkeypatch.setattr(passes, "attend", lambda inputs: seen.append(inputs) or attend(inputs))
    for most, taken in ((row, 1), (2 * row, 1), (row - 1, 0)):
        seen.clear()
        for found, expected in zip(in_passes(*arguments, most=most), learned(*arguments), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
        assert len(seen) == taken


def test_the_backward_pass_drops_what_the_forward_pass_dropped():
    """The result is linear in the values, so that it follows from their gradient if the same weights were dropped."""
    arguments = TGlobal(3, 2), 20, right_padded([20, 11], 20), None, 0.5
    first, again = in_passes(*arguments), in_passes(*arguments)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    mixed, dx = first[:2]
    torch.manual_seed(1)
    values = torch.randn(2, 30, 3, HEADS, WIDTH, dtype=torch.float64)[:, :, 2]
    upstream = torch.linspace(-1, 2, mixed.numel(), dtype=torch.float64).view_as(mixed)
    torch.testing.assert_close((dx[:, :, 2] * values).sum(), (mixed * upstream).sum())
    assert not torch.equal(mixed, in_passes(*arguments[:4], 0.0)[0])


def test_lower_precision_is_computed_in_float32():
    arguments = TGlobal(3, 2), 20, right_padded([20, 11], 20), None, 0.0
    low, high = in_passes(*arguments, torch.bfloat16), learned(*arguments, torch.bfloat16)
    for found, expected in zip(low, high, strict=True):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
