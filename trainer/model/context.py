"""The context of a batch: what layers need to know besides its hidden states."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainer.model.host import on_host


class Globals(NamedTuple):
    """Source positions that a task has made global (Longformer, arXiv:2004.05150, section 3.1).

    Attributes:
        at: ``(B, G)`` int64, their places in ascending order; beyond a row's own, 0.
        padding_mask: ``(B, G)`` bool, False beyond a row's own.
        chosen: ``(B, L)`` bool, the same by position.
    """

    at: Tensor
    padding_mask: Tensor
    chosen: Tensor


class Context(NamedTuple):
    """Made once a batch and read by every layer.

    Attributes:
        padding_mask: ``(B, L)`` bool, False at padding; None where there is none.
        segments: ``(B, L)`` int, the document (0, 1, ..., -1 at padding) that a position belongs to, where documents
            must not attend to each other; else None.
        documents: number of documents of the fullest row; 1 without segments.
        globals: positions that the task makes global; None where it makes none.
        biases: of relative positions, added to attention scores; one tensor for each of the pattern's ``offsets``:
            ``(H, *offsets.shape)``.
        rotation: ``(L, D)`` cosines and ``(L, D)`` sines of rotary positions; None where there are none.
    """

    padding_mask: Tensor | None = None
    segments: Tensor | None = None
    documents: int = 1
    globals: Globals | None = None
    biases: tuple[Tensor, ...] = ()
    rotation: tuple[Tensor, Tensor] | None = None


def make_context(
    padding_mask: Tensor | None = None, segments: Tensor | None = None, global_positions: Tensor | None = None
) -> Context:
    """A context without positional terms, which the encoder or decoder adds.

    Args:
        padding_mask: ``(B, L)`` bool, False at padding.
        segments: ``(B, L)`` int, as in ``Context``.
        global_positions: ``(B, L)`` bool.
    """
    documents = 1 if segments is None else max(1, int(on_host(segments).max()) + 1)
    return Context(
        padding_mask,
        segments,
        documents,
        None if global_positions is None else _gathered(global_positions, padding_mask),
    )


def _gathered(chosen: Tensor, padding_mask: Tensor | None) -> Globals | None:
    parts = [chosen] if padding_mask is None else [chosen, padding_mask]
    known = [on_host(x) for x in parts]
    if len({x.device for x in known}) > 1:
        known = parts
    most = int(torch.stack(known).all(0).sum(1).max()) if len(chosen) else 0
    chosen = torch.stack(parts).all(0)
    counts = chosen.sum(1)  # (B,)
    if not most:
        return None
    inside = torch.arange(most, device=chosen.device) < counts[:, None]  # (B, G)
    # a stable sort puts the chosen places first, each row's in ascending order
    at = chosen.logical_not().to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    return Globals(at.masked_fill(~inside, 0), inside, chosen)
