"""Cross-entropy that never holds the logits of a whole batch."""

from __future__ import annotations

from dataclasses import dataclass

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


def summed_cross_entropy(
    hidden: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None = None, chunk: int = CHUNK
) -> Tensor:
    """Cross-entropy summed, not averaged: a step divides its gradients by the target tokens of all its batches.

    Args:
        hidden: ``(N, d)``.
        labels: ``(N,)`` int64, ``IGNORED`` where nothing is asked.
        weight, bias: ``(V, d)`` and ``(V,)`` of the output layer.
        chunk: positions whose logits are held at once; the backward pass computes them again.

    Returns:
        Scalar float32.
    """
    total = torch.zeros((), device=hidden.device)
    for part, asked in zip(hidden.split(chunk), labels.split(chunk), strict=True):
        total = total + checkpoint(_sum, part, asked, weight, bias, use_reentrant=False)
    return total


def _sum(hidden: Tensor, labels: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias).float(), labels, ignore_index=IGNORED, reduction="sum")
