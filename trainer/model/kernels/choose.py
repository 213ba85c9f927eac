"""Which way of attending is taken: the pattern's own, which every other one must equal, or a CUDA device's.

- ``varlen`` where padding or documents would cost a mask, and with it the fast kernel.
- ``flex`` for windows and global positions within blocks, which are best said as a mask, relative positions included.
- the pattern's own way everywhere else: on a CPU, in float32, in layers that are compiled, with dropout of attention
  weights, with relative positions of other patterns, with heads too narrow for a kernel. Without padding and documents
  its reshaped blocks take the fast kernel as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.kernels import flex, plans, varlen
from trainer.model.kernels.remember import remembered

if TYPE_CHECKING:  # attention imports this file
    from trainer.model.attention import Pattern

_forced = False


@contextmanager
def reference_only() -> Iterator[None]:
    """Every attention takes the pattern's own way."""
    global _forced
    before, _forced = _forced, True
    try:
        yield
    finally:
        _forced = before


def attend_within(
    pattern: Pattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """``pattern.attend``, with the same arguments and result, the fastest way known.

    At padding the result may differ: there it is finite and meaningless.
    """
    if not fused(q, dropout):
        return pattern.attend(q, k, v, context, dropout, scale)
    if flex.AVAILABLE and pattern.pattern in flex.NAMES and q.shape[-1] >= flex.LEAST_WIDTH:
        return flex.attend(pattern, q, k, v, context, scale)
    plan = plan_within(pattern, q, context)
    if plan is None:
        return pattern.attend(q, k, v, context, dropout, scale)
    return varlen.attend(plan, q, k, v, scale)


def attend_across(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Context,
    keys: Context,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor | None:
    """Every query sees the real keys of its own document: cross- and pooled attention.

    Args:
        q: ``(B, Lq, H, D)``.
        k, v: ``(B, Lk, H, D)``.
        queries: of the Lq positions.
        keys: of the Lk positions; with segments exactly where ``queries`` has them.

    Returns:
        ``(B, Lq, H, D)``, or None where ``attention.attend`` is to be called.
    """
    if (keys.real is None and keys.segments is None) or not fused(q, dropout) or not varlen.AVAILABLE:
        return None
    batch, sizes = len(q), (q.shape[1], k.shape[1])

    def made() -> varlen.Plan:
        sides = (plans.rows_of(side, batch, size, q.device) for side, size in zip((queries, keys), sizes, strict=True))
        of_queries, of_keys = sides
        if of_queries.document.device != of_keys.document.device:  # one of them is made on the device
            of_queries, of_keys = (side._replace(document=side.document.to(q.device)) for side in (of_queries, of_keys))
        return plans.across(of_queries, of_keys).on(q.device)

    plan = remembered((queries.real, queries.segments, keys.real, keys.segments), (batch, *sizes), made)
    return varlen.attend(plan, q, k, v, scale)


def fused(q: Tensor, dropout: float) -> bool:
    """Whether kernels of a CUDA device may be taken for these queries."""
    return (
        q.is_cuda
        and not _forced
        # What is worked out for a batch has sizes that hang on its contents, which a whole compiled layer cannot have.
        and not torch.compiler.is_compiling()
        and not dropout
        and q.dtype in (torch.float16, torch.bfloat16)
        and q.shape[-1] % 8 == 0
        and q.shape[-1] <= 256
    )


def plan_within(pattern: Pattern, q: Tensor, context: Context) -> varlen.Plan | None:
    """The groups of a pattern, made once a batch; None where its own way is as fast or groups cannot say it."""
    real, segments = context.real, context.segments
    if (real is None and segments is None) or context.biases or not varlen.AVAILABLE:
        return None
    batch, length = len(q), q.shape[1] - context.documents * pattern.extra_tokens
    key = (pattern, batch, length)

    def made() -> varlen.Plan | None:
        plan = _plan(pattern, context, batch, length, q.device)
        return plan and plan.on(q.device)

    return remembered((real, segments), key, made)


def _plan(pattern: Any, context: Context, batch: int, length: int, device: torch.device) -> varlen.Plan | None:
    rows = plans.rows_of(context, batch, length, device)
    match pattern.pattern:  # by name, because patterns import attention, which imports this file
        case "full":
            return plans.across(rows, rows)
        case "block":
            return plans.blocks(rows, pattern.size)
        case "overlap":
            return plans.overlapping(rows, pattern.size)
        case "staggered":
            shift = pattern.size // 2 if pattern.shifted else 0
            return plans.with_global_tokens(rows, pattern.size, shift, pattern.global_tokens)
    return None
