"""The order of candidates: scores on a grid, ties by the lowest beam and id."""

from __future__ import annotations

import torch
from torch import Tensor

STEPS = 2.0**22
"""Steps of the grid per unit of log-probability.

On a grid, sums are exact, so that scores do not depend on the order of additions, and equal scores are ordered by beam
and id. A coarse grid would not make texts more alike on different processors: noise moves values across its steps as
often as past each other. It makes ties of continuations that differ: with 2^16 steps, 1 of 894 texts was worse.
"""


def on_grid(logits: Tensor) -> Tensor:
    """Round log-probabilities to multiples of 1 / ``STEPS``, so that their sums are exact; ``(R, V)`` float64.

    Logits of lower precision are widened to float32 first.
    """
    return torch.log_softmax(logits.float(), -1).double().mul_(STEPS).round_().div_(STEPS)


def best_tokens(log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` best tokens of every row, the lowest id first among equals.

    Args:
        log_probs: ``(R, V)``, on the grid.
        count: number of tokens, at most V.

    Returns:
        Values and ids, ``(R, count)``, in descending order.
    """
    vocabulary = log_probs.shape[1]
    # exact, because 2^7 * 2^22 steps and ids below 2^20 fit into the 53 bits of a float64
    keys = log_probs * (STEPS * vocabulary) - torch.arange(vocabulary, device=log_probs.device)
    ids = keys.topk(count, dim=1).indices
    return log_probs.gather(1, ids), ids


def best_candidates(log_probs: Tensor, live: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of a sample's texts; among equals the lowest beam, then the lowest id.

    Args:
        log_probs: ``(n * K, V)``, on the grid.
        live: ``(n, K)`` float64, log-probabilities of the texts.
        count: number of candidates, at most K * V.

    Returns:
        Log-probabilities, beams and ids, each ``(n, count)``, in descending order.
    """
    samples, beams = live.shape
    values, ids = best_tokens(log_probs, min(count, log_probs.shape[1]))
    each = values.shape[1]
    totals = (live[..., None] + values.view(samples, beams, each)).flatten(1)
    # A stable sort keeps equal totals in the order of beams and ids.
    totals, order = totals.sort(dim=1, descending=True, stable=True)
    order = order[:, :count]
    return totals[:, :count], order // each, ids.view(samples, -1).gather(1, order)
