from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from trainer.model.loss import LossConfig, sum_cross_entropy


@pytest.mark.parametrize("chunk", [1, 4, 10, 99])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_any_chunks_give_the_plain_loss_and_gradients(chunk, with_bias, smoothing):
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
    bias = torch.randn(7, requires_grad=True) if with_bias else None
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    inputs = [x for x in (hidden, weight, bias) if x is not None]
    logits = hidden @ weight.T + (0 if bias is None else bias)

    def expected(share):
        return F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=share)

    chunked = sum_cross_entropy(hidden, labels, weight, bias, loss=LossConfig(label_smoothing=smoothing), chunk=chunk)
    torch.testing.assert_close(chunked.minimised, expected(smoothing))
    torch.testing.assert_close(chunked.plain, expected(0.0).detach())
    assert not chunked.plain.requires_grad
    found = torch.autograd.grad(chunked.minimised, inputs)
    torch.testing.assert_close(found, torch.autograd.grad(expected(smoothing), inputs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nothing_asked_is_zero_with_zero_gradients(smoothing):
    for rows in (0, 3):
        hidden, weight = torch.randn(rows, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
        labels = torch.full((rows,), IGNORED)
        losses = sum_cross_entropy(hidden, labels, weight, loss=LossConfig(label_smoothing=smoothing, z_loss=0.1))
        assert losses.minimised == losses.plain == 0
        (gradient,) = torch.autograd.grad(losses.minimised, [weight])
        assert not gradient.any()


def test_the_sum_is_float32_under_bfloat16():
    hidden, weight = torch.randn(3000, 8), torch.randn(50, 8)
    labels = torch.randint(0, 50, (3000,))
    with torch.autocast("cpu", torch.bfloat16):
        low = sum_cross_entropy(hidden, labels, weight).minimised
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, sum_cross_entropy(hidden, labels, weight).minimised, rtol=2e-3, atol=0)


def test_the_sum_keeps_float64():
    hidden, weight = torch.randn(30, 8, dtype=torch.float64), torch.randn(50, 8, dtype=torch.float64)
    labels = torch.randint(0, 50, (30,))
    expected = F.cross_entropy(hidden @ weight.T, labels, reduction="sum")
    torch.testing.assert_close(
        sum_cross_entropy(hidden, labels, weight, chunk=7).minimised, expected, rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_bad_shares_are_refused(share):
    with pytest.raises(FarspanError, match="label_smoothing"):
        LossConfig(label_smoothing=share)


@pytest.mark.parametrize("chunk", [3, 99])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_z_loss_is_the_squared_log_of_the_partition_function(chunk, smoothing):
    hidden, weight = torch.randn(10, 6, requires_grad=True), torch.randn(7, 6, requires_grad=True)
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    logits = hidden @ weight.T
    plain = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing)
    expected = plain + 0.05 * logits.exp().sum(-1).log()[labels != IGNORED].square().sum()
    loss = LossConfig(label_smoothing=smoothing, z_loss=0.05)
    found = sum_cross_entropy(hidden, labels, weight, loss=loss, chunk=chunk)
    torch.testing.assert_close(found.minimised, expected)
    torch.testing.assert_close(found.plain, F.cross_entropy(logits, labels, reduction="sum").detach())
    for one, other in zip(
        *(torch.autograd.grad(x, [hidden, weight]) for x in (found.minimised, expected)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("weight", [-0.1, float("inf")])
def test_weights_of_z_loss_that_mean_nothing_are_refused(weight):
    with pytest.raises(FarspanError, match="z_loss"):
        LossConfig(z_loss=weight)


@pytest.mark.parametrize("share", [0.1, 0.7])
def test_smoothing_in_the_form_of_fairseq(share):
    hidden, weight = torch.randn(10, 6, dtype=torch.float64), torch.randn(7, 6, dtype=torch.float64)
    labels = torch.randint(0, 7, (10,))
    labels[[2, 9]] = IGNORED
    log_probabilities = (hidden @ weight.T).log_softmax(-1)[labels != IGNORED]
    nll = -log_probabilities.gather(1, labels[labels != IGNORED][:, None]).sum()
    each = share / (7 - 1)
    expected = (1 - share - each) * nll + each * -log_probabilities.sum()
    loss = LossConfig(label_smoothing=share, label_smoothing_form="fairseq")
    found = sum_cross_entropy(hidden, labels, weight, loss=loss)
    torch.testing.assert_close(found.minimised, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.plain, nll, rtol=1e-12, atol=0)
    szegedy = sum_cross_entropy(hidden, labels, weight, loss=LossConfig(label_smoothing=share)).minimised
    assert abs(szegedy - expected) > 0.01
