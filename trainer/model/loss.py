"""Cross-entropy that never holds the logits of a whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from corpora.errors import FarspanError
from objectives.examples import IGNORED


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """What is minimised.

    Attributes:
        label_smoothing: share of the probability that is spread over the whole vocabulary (Szegedy et al. 2016,
            section 7); losses that are reported are without it.

    Raises:
        FarspanError: a share outside [0, 1).
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise FarspanError(f"loss.label_smoothing is {self.label_smoothing}; it must lie in [0, 1)")


CHUNK = 512
"""Positions whose logits exist at once: 512 x 50,265 float32 are 98 MiB."""


class Losses(NamedTuple):
    """Of a forward pass, summed over the asked tokens; scalars, at least float32.

    Attributes:
        minimised: what gradients come from.
        plain: the cross-entropy without label smoothing, without a gradient; what is reported.
    """

    minimised: Tensor
    plain: Tensor


def summed_cross_entropy(
    hidden: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    smoothing: float = 0.0,
    chunk: int = CHUNK,
) -> Losses:
    """Cross-entropy summed, not averaged: a step divides its gradients by the target tokens of all its batches.

    Args:
        hidden: ``(N, d)``.
        labels: ``(N,)`` int32 or int64, ``IGNORED`` where nothing is asked.
        weight, bias: ``(V, d)`` and ``(V,)`` of the output layer.
        smoothing: as ``LossConfig.label_smoothing``.
        chunk: positions whose logits are held at once; the backward pass computes them again.
    """
    parts = [
        checkpoint(_sums, part, asked, weight, bias, smoothing, use_reentrant=False)
        for part, asked in zip(hidden.split(chunk), labels.split(chunk), strict=True)
    ]
    return Losses(*(torch.stack(column).sum() for column in zip(*parts, strict=True)))


def _sums(
    hidden: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None, smoothing: float
) -> tuple[Tensor, Tensor]:
    logits = F.linear(hidden, weight, bias)
    spoken = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)  # (n, V)
    plain = F.nll_loss(spoken, labels.long(), ignore_index=IGNORED, reduction="sum")
    if not smoothing:
        return plain, plain.detach()
    spread = -(spoken.mean(-1) * (labels != IGNORED)).sum()
    return torch.lerp(plain, spread, smoothing), plain.detach()
