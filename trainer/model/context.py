"""The context of a batch: the inputs of layers besides the hidden states."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainer.model.host import on_host


class Globals(NamedTuple):
    """Source positions with global attention (Longformer, arXiv:2004.05150, section 3.1).

    Attributes:
        at: ``(B, G)`` int64, indices in ascending order, padded with 0.
        padding_mask: ``(B, G)`` bool, False at padding.
        chosen: ``(B, L)`` bool, True at global positions.
    """

    at: Tensor
    padding_mask: Tensor
    chosen: Tensor


class Context(NamedTuple):
    """Masks, documents and position terms of a batch, made once per batch and read by every layer.

    Attributes:
        padding_mask: ``(B, L)`` bool, False at padding; None without padding.
        segments: ``(B, L)`` int, the document (0, 1, ..., -1 at padding) of each position; None if documents may attend
            to each other.
        documents: largest number of documents in a row; 1 without segments.
        globals: positions with global attention; None if there are none.
        biases: relative-position biases, added to attention scores; one tensor ``(H, *offsets.shape)`` for each of the
            pattern's ``offsets``.
        rotation: cosines and sines of rotary positions, ``(L, D)`` each; None for other positions.
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
    """Make a context without positional terms, which the encoder or decoder adds.

    Args:
        padding_mask: ``(B, L)`` bool, False at padding.
        segments: ``(B, L)`` int, as in ``Context``.
        global_positions: ``(B, L)`` bool, True at positions with global attention.
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
    # A stable sort puts the chosen positions first, in ascending order within each row.
    at = chosen.logical_not().to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    return Globals(at.masked_fill(~inside, 0), inside, chosen)
