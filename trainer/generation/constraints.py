"""Constraints on the next token: padding, lengths, forced tokens, repeated n-grams."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.generation.config import GenerationConfig
from trainer.generation.sources import DecoderIds

_NEVER = float("-inf")


def constrain(
    log_probs: Tensor, history: Tensor, positions: Tensor, step: int, config: GenerationConfig, ids: DecoderIds
) -> Tensor:
    """Set the log-probabilities of forbidden tokens to minus infinity; all others keep their value.

    Args:
        log_probs: ``(R, V)``.
        history: ``(R, P)`` int64, decoder ids so far with the start; arbitrary after the position.
        positions: ``(R,)`` int64, the position of each text's last token.
        step: number of tokens generated so far.
        config: the constraints.
        ids: ids of the end and the padding.

    Returns:
        ``(R, V)``. If no token is allowed, the end is.
    """
    forced = config.first_tokens[step] if step < len(config.first_tokens) else None
    if step >= config.max_tokens:
        forced = ids.end
    if forced is not None:
        only = torch.full_like(log_probs, _NEVER)
        only[:, forced] = log_probs[:, forced]
        return only
    ends = log_probs[:, ids.end].clone()
    log_probs = log_probs.clone()
    log_probs[:, ids.pad] = _NEVER
    if step < config.min_tokens:
        log_probs[:, ids.end] = _NEVER
    if config.no_repeat_ngram:
        log_probs = without_repeats(log_probs, history, positions, config.no_repeat_ngram)
    if log_probs.shape[1] <= history.shape[1] + 2:  # so few tokens that all may be forbidden
        nothing = (log_probs == _NEVER).all(1)
        log_probs[:, ids.end] = torch.where(nothing, ends, log_probs[:, ids.end])
    return log_probs


def without_repeats(log_probs: Tensor, history: Tensor, positions: Tensor, size: int) -> Tensor:
    """Forbid each token that would complete an n-gram of ``size`` tokens that its text already has.

    Arguments and result as in ``constrain``.
    """
    before = size - 1
    if history.shape[1] <= before:
        return log_probs
    places = torch.arange(before, device=history.device)
    last = history.gather(1, (positions[:, None] - before + 1 + places).clamp(min=0))  # (R, n - 1)
    windows = history.unfold(1, size, 1)  # (R, P - n + 1, n)
    ends = torch.arange(before, history.shape[1], device=history.device)  # position of each window's last token
    same = (windows[..., :before] == last[:, None]).all(-1)
    same &= (ends <= positions[:, None]) & (positions[:, None] >= before - 1)
    forbidden = torch.full_like(windows[..., -1], 0, dtype=log_probs.dtype).masked_fill(same, _NEVER)
    # minimum, because a token is forbidden if any window forbids it
    forbidden = forbidden.masked_fill(~same, float("inf"))
    return log_probs.scatter_reduce(1, windows[..., -1], forbidden, "amin")
