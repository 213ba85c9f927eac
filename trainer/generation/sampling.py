"""Draws of tokens, keyed by the seed of the sample, so that they do not depend on the batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from corpora.keyed import make_key
from trainer.generation.candidates import best_tokens
from trainer.generation.config import GenerationConfig


def uniforms(seeds: np.ndarray, config: GenerationConfig) -> np.ndarray:
    """Draw ``(n, max_tokens + 1)`` float64 in [0, 1), a row for each of the ``(n,)`` uint64 sample seeds."""
    own = int.from_bytes(make_key(config.seed, "generation")[:8], "little")
    rows = [
        np.random.Generator(np.random.Philox(key=np.array([own, seed], np.uint64))).random(config.max_tokens + 1)
        for seed in seeds.tolist()
    ]
    return np.stack(rows)


def draw(log_probs: Tensor, uniform: Tensor, config: GenerationConfig) -> Tensor:
    """Draw one token for each row, by inverting the cumulative distribution in the order of ids.

    Args:
        log_probs: ``(R, V)`` float64, minus infinity for forbidden tokens.
        uniform: ``(R,)`` float64 in [0, 1).
        config: temperature, top_k and top_p, applied in this order.

    Returns:
        ``(R,)`` int64.
    """
    # the best token is at 0, so that a low temperature cannot take all of them to minus infinity
    scaled = (log_probs - log_probs.amax(1, keepdim=True)) / config.temperature
    if config.top_k or config.top_p < 1:
        count = min(config.top_k or scaled.shape[1], scaled.shape[1])
        ids = best_tokens(log_probs, count)[1]
        chosen = scaled.gather(1, ids)
        shares = chosen.softmax(-1)
        before = shares.cumsum(-1) - shares  # probability of all better tokens
        chosen = chosen.masked_fill(before >= config.top_p, float("-inf"))
        scaled = torch.full_like(scaled, float("-inf")).scatter(1, ids, chosen)
    cumulative = scaled.softmax(-1).cumsum(-1)
    threshold = uniform[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, threshold, right=True)[:, 0].clamp(max=scaled.shape[1] - 1)
