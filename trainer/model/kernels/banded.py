"""Attention within a band and to side keys, without storing the scores.

With learned biases, PyTorch's CPU kernel stores all scores several times. Here they are computed for one chunk of
queries at a time, small enough for a cache (``chunks.py``), and recomputed in the backward pass. Training on a GPU
uses FlexAttention instead (``flex.py``), except in float32, in compiled layers and with dropout of attention weights.
The attention is a custom operator, which ``torch.compile`` does not trace.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.kernels.chunks import NOBODY, Inputs, sum_diagonals


def attend_banded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    radius: int,
    block: int = 1,
    side_documents: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attend to the positions within ``radius`` that are not padding, and to side keys, as in ``Pattern.attend``.

    ``q`` is ``(B, L, H, D)``; ``k`` and ``v`` are ``(B, L + G, H, D)`` with the G side keys last, each of which
    summarises ``block`` positions. The context's biases, if any, are ``(H, 2 radius + 1)`` by offset and, with side
    keys, ``(H, 2 G - 1)`` by distance in blocks. ``side_documents``, ``(B, G)`` int, are the documents whose queries
    attend to the side keys, ``NOBODY`` for unused ones; None if all queries attend to all of them.
    """
    if k.shape[2] != q.shape[2]:
        k, v = (x.repeat_interleave(q.shape[2] // k.shape[2], 2) for x in (k, v))
    near, far = context.biases[:1], context.biases[1:]
    count = k.shape[1] - q.shape[1]
    return banded_attention(
        q,
        k,
        v,
        near[0] if near else q.new_zeros(q.shape[2], 2 * radius + 1),
        far[0] if far else q.new_zeros(q.shape[2], max(1, 2 * count - 1)),
        *_documents(context, side_documents),
        torch.randint(2**62, ()) if dropout else None,
        block,
        q.shape[-1] ** -0.5 if scale is None else scale,
        dropout,
    )


def _documents(context: Context, side_documents: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return the documents of queries, ``(B, L)``, and of keys, ``(B, L + G)``; None if queries attend to all keys."""
    padding_mask, segments = context.padding_mask, context.segments
    if segments is None:
        if padding_mask is None:
            return None, None
        segments = torch.zeros_like(padding_mask, dtype=torch.int64)
    keys = segments if padding_mask is None else segments.masked_fill(~padding_mask, NOBODY)
    if side_documents is not None:
        keys = torch.cat([keys, side_documents.to(keys.dtype)], 1)
    return segments, keys


_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor near, Tensor far, Tensor? query_documents, Tensor? key_documents, "
    "Tensor? seed, int block, float scale, float dropout"
)
"""The fields of ``Inputs``, for PyTorch."""


@torch.library.custom_op("farspan::banded_attention", mutates_args=(), schema=f"({_INPUTS}) -> Tensor")
def banded_attention(*fields: Any) -> Tensor:
    """Attend to the keys within a radius and to side keys, by the fields of ``Inputs``.

    Returns ``(B, L, H, D)``; zeros where a query attends to no key.
    """
    inputs = Inputs(*fields)
    q = inputs.q
    mixed = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.autocast(q.device.type, enabled=False):
        for chunk in inputs.chunks():
            mixed[chunk.row, chunk.queries] = (chunk.dropped_weights() @ chunk.v).transpose(0, 1).to(q.dtype)
    return mixed


@banded_attention.register_fake
def _(q: Tensor, *_: object) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op(
    "farspan::banded_attention_backward",
    mutates_args=(),
    schema=f"(Tensor upstream, {_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def banded_attention_backward(upstream: Tensor, *fields: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of q, k, v, near and far from the gradient of the result, ``upstream``."""
    inputs = Inputs(*fields)
    q, k, v, near, far = inputs[:5]
    length, sides, kind = inputs.length, inputs.sides, inputs.kind
    dq, dk, dv, dnear, dfar = (torch.zeros(x.shape, dtype=kind, device=q.device) for x in (q, k, v, near, far))
    dband = torch.zeros(len(near), inputs.size, inputs.size + 2 * inputs.radius, dtype=kind, device=q.device)
    with torch.autocast(q.device.type, enabled=False):
        for chunk in inputs.chunks():
            row, keys, width = chunk.row, chunk.keys, chunk.keys.stop - chunk.keys.start
            above = upstream[row, chunk.queries].transpose(0, 1).to(kind)  # (H, C, D)
            dvalues = chunk.dropped_weights().mT @ above  # (H, W + G, D)
            dweights = above @ chunk.v.mT  # (H, C, W + G)
            if chunk.dropout_factors is not None:
                dweights.mul_(chunk.dropout_factors)
            dscores = torch._softmax_backward_data(dweights, chunk.weights, -1, kind)
            dkeys = dscores.mT @ chunk.q  # q includes the scale
            dq[row, chunk.queries] = (dscores @ chunk.k).mul_(inputs.scale).transpose(0, 1)
            for total, part in ((dk, dkeys), (dv, dvalues)):
                total[row, keys] += part[:, :width].transpose(0, 1)
                total[row, length:] += part[:, width:].transpose(0, 1)
            dband[:, : dscores.shape[1], chunk.skipped : chunk.skipped + width] += dscores[..., :width]
            if sides:
                dfar += inputs.sum_far(dscores[..., width:], chunk.queries.start, chunk.own)
    dnear = sum_diagonals(dband, near.shape[1])
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dnear.to(near.dtype), dfar.to(far.dtype)


@banded_attention_backward.register_fake
def _(_upstream: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in inputs[:5])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:8])
    ctx.numbers = inputs[8:]


def _gradients(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    return (*banded_attention_backward(upstream, *ctx.saved_tensors, *ctx.numbers), *[None] * 6)


banded_attention.register_autograd(_gradients, setup_context=_save)
