"""Selection of the attention kernel: the pattern's own ``attend``, or an equivalent kernel for CUDA devices.

- ``varlen`` if padding or documents would need a mask, which rules out the fast kernel.
- ``flex`` for patterns that are best expressed as a mask (``uses_flex``), with or without relative positions.
- the pattern's own ``attend`` in all other cases: on a CPU, in float32, in compiled layers, with dropout of attention
  weights, with relative positions of other patterns, and with heads too narrow for a kernel. Without padding and
  documents its reshaped blocks use the fast kernel directly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.model.context import Context, remember_per_batch
from trainer.model.kernels import flex, varlen
from trainer.model.pattern import Pattern


def attend_within(
    pattern: Pattern,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute ``pattern.attend`` with the fastest kernel; arguments and results are the same.

    At padding the result may differ: it is finite but arbitrary there.
    """
    if not can_fuse(q, dropout):
        return pattern.attend(q, k, v, context, dropout, scale)
    if flex.AVAILABLE and pattern.uses_flex and q.shape[-1] >= flex.LEAST_WIDTH:
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
    """Attend from every query to the keys of its own document, without padding: cross- and pooled attention.

    ``q`` is ``(B, Lq, H, D)``, ``k`` and ``v`` ``(B, Lk, H, D)``; the contexts of the Lq and the Lk positions both have
    segments, or neither has. Returns ``(B, Lq, H, D)``, or None if the caller must use ``attention.attend``.
    """
    if (keys.padding_mask is None and keys.segments is None) or not can_fuse(q, dropout) or not varlen.AVAILABLE:
        return None
    batch, sizes = len(q), (q.shape[1], k.shape[1])

    def make() -> varlen.Plan:
        sides = (varlen.rows_of(side, batch, size, q.device) for side, size in zip((queries, keys), sizes, strict=True))
        of_queries, of_keys = sides
        if of_queries.document.device != of_keys.document.device:  # one of them is made on the device
            of_queries, of_keys = (side._replace(document=side.document.to(q.device)) for side in (of_queries, of_keys))
        return varlen.plan_documents(of_queries, of_keys).on(q.device)

    plan = remember_per_batch(
        (queries.padding_mask, queries.segments, keys.padding_mask, keys.segments), (batch, *sizes), make
    )
    return varlen.attend(plan, q, k, v, scale)


def can_fuse(q: Tensor, dropout: float) -> bool:
    """Return True if the kernels for CUDA devices support these queries."""
    return (
        q.is_cuda
        # The plan's shapes depend on the batch, which a layer compiled as a whole does not allow.
        and not torch.compiler.is_compiling()
        and not dropout
        and q.dtype in (torch.float16, torch.bfloat16)
        and q.shape[-1] % 8 == 0
        and q.shape[-1] <= 256
    )


def plan_within(pattern: Pattern, q: Tensor, context: Context) -> varlen.Plan | None:
    """Return the groups of a pattern, computed once per batch.

    None if the pattern's own ``attend`` is as fast, or if groups cannot express the pattern.
    """
    padding_mask, segments = context.padding_mask, context.segments
    if (padding_mask is None and segments is None) or context.biases or not varlen.AVAILABLE:
        return None
    batch, length = len(q), q.shape[1] - context.most_documents * pattern.extra_tokens
    key = (pattern, batch, length)

    def make() -> varlen.Plan | None:
        plan = pattern.plan(varlen.rows_of(context, batch, length, q.device))
        return plan and plan.on(q.device)

    return remember_per_batch((padding_mask, segments), key, make)
