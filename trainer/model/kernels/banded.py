"""Attention within a band, and to side keys that all queries see, whose scores are never kept.

Learned biases cost a CPU its fast attention kernel, and the kernel that is left keeps every score, several times over.
Here one chunk of queries after another meets its keys, small enough for a cache (``chunks.py``), or on a GPU some rows
after others (``passes.py``); the backward pass makes the scores again. It is an operator, which a compiler takes as it
is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.kernels import passes
from trainer.model.kernels.chunks import NOBODY, Inputs, sum_diagonals


def attend_banded(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    radius: int,
    sides: Sides | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attention to real positions within ``radius``, and to side keys.

    Args:
        q: ``(B, L, H, D)``.
        k, v: ``(B, L + G, H, D)``, the G side keys last.
        context: of the L positions; its biases, if any, are ``(H, 2 radius + 1)`` by offset and, with side keys,
            ``(H, 2 G - 1)`` by distance in blocks.
        sides: what the G are; None where there are none.
        dropout, scale: as in ``attend``.

    Returns:
        ``(B, L, H, D)``; zeros where a query sees nothing.
    """
    near, far = context.biases[:1], context.biases[1:]
    count = k.shape[1] - q.shape[1]
    return banded_attention(
        q,
        k,
        v,
        near[0] if near else q.new_zeros(q.shape[2], 2 * radius + 1),
        far[0] if far else q.new_zeros(q.shape[2], max(1, 2 * count - 1)),
        *_documents(context, sides),
        torch.randint(2**62, ()) if dropout else None,
        sides.block if sides else 1,
        q.shape[-1] ** -0.5 if scale is None else scale,
        dropout,
    )


class Sides(NamedTuple):
    """Side keys.

    Attributes:
        block: positions that each of them stands for.
        documents: ``(B, G)`` int, whose queries see them, ``NOBODY`` where there is none; None where all queries do.
    """

    block: int
    documents: Tensor | None


def _documents(context: Context, sides: Sides | None) -> tuple[Tensor | None, Tensor | None]:
    """Of queries ``(B, L)`` and of keys ``(B, L + G)``; a query sees keys of its own. None where it sees all."""
    padding_mask, segments = context.padding_mask, context.segments
    if segments is None:
        if padding_mask is None:
            return None, None
        segments = torch.zeros_like(padding_mask, dtype=torch.int64)
    keys = segments if padding_mask is None else segments.masked_fill(~padding_mask, NOBODY)
    if sides is not None and sides.documents is not None:
        keys = torch.cat([keys, sides.documents.to(keys.dtype)], 1)
    return segments, keys


@torch.library.custom_op("farspan::banded_attention", mutates_args=())
def banded_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    near: Tensor,
    far: Tensor,
    query_documents: Tensor | None,
    key_documents: Tensor | None,
    seed: Tensor | None,
    block: int,
    scale: float,
    dropout: float,
) -> Tensor:
    """Attention to the keys within a radius r and to G side keys, one for each block of positions.

    Args:
        q: ``(B, L, H, D)``.
        k, v: ``(B, L + G, H, D)``, the side keys last.
        near: ``(H, 2 r + 1)``, added to the scores of the offsets -r ... r.
        far: ``(H, 2 G - 1)``, added to the scores of a side key by its distance in blocks, 1 - G ... G - 1; of any
            width where G is 0.
        query_documents, key_documents: ``(B, L)`` and ``(B, L + G)`` int, a query sees keys of its own number only;
            None where all keys are seen. A side key with a number below 0 is none.
        seed: int64 scalar that dropout is drawn from; None where ``dropout`` is 0.
        block: positions that a side key stands for; those after the last whole block count with it.
        scale: of the scores.
        dropout: probability of dropping an attention weight.

    Returns:
        ``(B, L, H, D)``; zeros where a query sees no key.
    """
    inputs = Inputs(q, k, v, near, far, query_documents, key_documents, seed, block, scale, dropout)
    if passes.taken(inputs):
        with torch.autocast(q.device.type, enabled=False):
            return passes.attend(inputs)
    mixed = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.autocast(q.device.type, enabled=False):
        for chunk in inputs.chunks():
            mixed[chunk.row, chunk.queries] = (chunk.dropped() @ chunk.v).transpose(0, 1).to(q.dtype)
    return mixed


@banded_attention.register_fake
def _(q: Tensor, *_: object) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op("farspan::banded_attention_backward", mutates_args=())
def banded_attention_backward(
    upstream: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    near: Tensor,
    far: Tensor,
    query_documents: Tensor | None,
    key_documents: Tensor | None,
    seed: Tensor | None,
    block: int,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k, v, near and far from that of the result, ``upstream``."""
    inputs = Inputs(q, k, v, near, far, query_documents, key_documents, seed, block, scale, dropout)
    if passes.taken(inputs):
        with torch.autocast(q.device.type, enabled=False):
            dq, dk, dv, dnear, dfar = passes.gradients(inputs, upstream)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dnear.to(near.dtype), dfar.to(far.dtype)
    length, sides, kind = inputs.length, inputs.sides, inputs.kind
    dq, dk, dv, dnear, dfar = (torch.zeros(x.shape, dtype=kind, device=q.device) for x in (q, k, v, near, far))
    dband = torch.zeros(len(near), inputs.size, inputs.size + 2 * inputs.radius, dtype=kind, device=q.device)
    with torch.autocast(q.device.type, enabled=False):
        for chunk in inputs.chunks():
            row, keys, width = chunk.row, chunk.keys, chunk.keys.stop - chunk.keys.start
            above = upstream[row, chunk.queries].transpose(0, 1).to(kind)  # (H, C, D)
            dvalues = chunk.dropped().mT @ above  # (H, W + G, D)
            dweights = above @ chunk.v.mT  # (H, C, W + G)
            if chunk.kept is not None:
                dweights.mul_(chunk.kept)
            dscores = torch._softmax_backward_data(dweights, chunk.weights, -1, kind)
            dkeys = dscores.mT @ chunk.q  # the scale is in q
            dq[row, chunk.queries] = (dscores @ chunk.k).mul_(scale).transpose(0, 1)
            for total, part in ((dk, dkeys), (dv, dvalues)):
                total[row, keys] += part[:, :width].transpose(0, 1)
                total[row, length:] += part[:, width:].transpose(0, 1)
            dband[:, : dscores.shape[1], chunk.skipped : chunk.skipped + width] += dscores[..., :width]
            if sides:
                dfar += inputs.sum_far(dscores[..., width:], chunk.queries.start, chunk.whole)
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
