from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from objectives.examples import IGNORED
from trainer.model.loss import summed_cross_entropy


@pytest.mark.parametrize("chunk", [1, 4, 10, 99])
@pytest.mark.parametrize("with_bias", [False, True])
def test_any_chunks_give_the_plain_loss_and_gradients(chunk, with_bias):
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
    bias = torch.randn(7, requires_grad=True) if with_bias else None
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    asked = labels != IGNORED
    plain = F.cross_entropy((hidden @ weight.T + (0 if bias is None else bias))[asked], labels[asked], reduction="sum")
    chunked = summed_cross_entropy(hidden, labels, weight, bias, chunk)
    torch.testing.assert_close(chunked, plain)
    torch.testing.assert_close(torch.autograd.grad(chunked, inputs), torch.autograd.grad(plain, inputs))


def test_the_sum_is_float32_under_bfloat16():
    hidden, weight = torch.randn(3000, 8), torch.randn(50, 8)
    labels = torch.randint(0, 50, (3000,))
    with torch.autocast("cpu", torch.bfloat16):
        low = summed_cross_entropy(hidden, labels, weight)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, summed_cross_entropy(hidden, labels, weight), rtol=2e-3, atol=0)
