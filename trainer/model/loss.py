"""Cross-entropy computed in chunks, without storing the logits of a whole batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """The function that is minimised.

    Attributes:
        label_smoothing: share of the probability that is spread over the whole vocabulary (Szegedy et al. 2016,
            section 7).
        z_loss: weight of ``log(Z) ** 2`` for every target token, Z being the sum of the exponentiated logits, which
            keeps log(Z) near zero (T5 1.1 and LongT5 as released: 1e-4).

    Reported losses are the plain cross-entropy, without these two terms.

    Raises:
        FarspanError: a share outside [0, 1), a weight below 0 or infinite.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise FarspanError(f"loss.label_smoothing is {self.label_smoothing}; it must lie in [0, 1)")
        if not 0 <= self.z_loss < math.inf:
            raise FarspanError(f"loss.z_loss is {self.z_loss}; it must be at least 0 and finite (T5 1.1 has 1e-4)")


CROSS_ENTROPY = LossConfig()
"""Plain cross-entropy."""
CHUNK = 512
"""Positions per chunk: the logits of 512 x 50,265 in float32 take 98 MiB."""


class Losses(NamedTuple):
    """Losses of a forward pass, summed over the target tokens; scalars, at least float32.

    Attributes:
        minimised: the loss to differentiate.
        plain: the plain cross-entropy, without a gradient; for reports.
    """

    minimised: Tensor
    plain: Tensor


def summed_cross_entropy(
    hidden: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    loss: LossConfig = CROSS_ENTROPY,
    chunk: int = CHUNK,
) -> Losses:
    """Sum the cross-entropy over targets; a step divides its gradients by the target tokens of all its batches.

    Args:
        hidden: ``(N, d)``.
        labels: ``(N,)`` int32 or int64, ``IGNORED`` where there is no target.
        weight, bias: ``(V, d)`` and ``(V,)`` of the output layer.
        loss: the function that is minimised.
        chunk: positions whose logits are in memory at once; the backward pass computes them again.
    """
    parts = [
        checkpoint(_sums, part, targets, weight, bias, loss, use_reentrant=False)
        for part, targets in zip(hidden.split(chunk), labels.split(chunk), strict=True)
    ]
    return Losses(*(torch.stack(column).sum() for column in zip(*parts, strict=True)))


def _sums(
    hidden: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None, loss: LossConfig
) -> tuple[Tensor, Tensor]:
    logits = F.linear(hidden, weight, bias)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (n, V)
    log_probabilities, targets = logits.log_softmax(-1), labels != IGNORED
    plain = F.nll_loss(log_probabilities, labels.long(), ignore_index=IGNORED, reduction="sum")
    minimised = plain
    if loss.label_smoothing:
        minimised = torch.lerp(plain, -(log_probabilities.mean(-1) * targets).sum(), loss.label_smoothing)
    if loss.z_loss:
        minimised = minimised + loss.z_loss * (logits.logsumexp(-1).square() * targets).sum()
    return minimised, plain.detach()
