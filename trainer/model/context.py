"""What the layers of a stack know of a batch besides its hidden states."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainer.model.host import on_host


class Globals(NamedTuple):
    """Source positions that a task has made global (Longformer, arXiv:2004.05150, section 3.1).

    Attributes:
        at: ``(B, G)`` int64, their places in ascending order; beyond a row's own, 0.
        real: ``(B, G)`` bool, False beyond a row's own.
        chosen: ``(B, L)`` bool, the same by position.
    """

    at: Tensor
    real: Tensor
    chosen: Tensor


class Context(NamedTuple):
    """Made once a batch and read by every layer.

    Attributes:
        real: ``(B, L)`` bool, False at padding; None where there is none.
        segments: ``(B, L)`` int, the document (0, 1, ..., -1 at padding) that a position belongs to, where documents
            must not see each other; else None.
        documents: how many documents the fullest row has; 1 without segments.
        globals: positions that the task makes global; None where it makes none.
        biases: what relative positions add to attention scores, one tensor for each of the pattern's ``offsets``:
            ``(H, *offsets.shape)``.
        rotation: ``(L, D)`` cosines and ``(L, D)`` sines that queries and keys are turned by; None where they are not.
    """

    real: Tensor | None = None
    segments: Tensor | None = None
    documents: int = 1
    globals: Globals | None = None
    biases: tuple[Tensor, ...] = ()
    rotation: tuple[Tensor, Tensor] | None = None


def make_context(
    real: Tensor | None = None, segments: Tensor | None = None, global_positions: Tensor | None = None
) -> Context:
    """A context without positions, which a stack adds.

    Args:
        real: ``(B, L)`` bool, False at padding.
        segments: ``(B, L)`` int, as in ``Context``.
        global_positions: ``(B, L)`` bool.
    """
    documents = 1 if segments is None else max(1, int(on_host(segments).max()) + 1)
    return Context(real, segments, documents, None if global_positions is None else _gathered(global_positions, real))


def _gathered(chosen: Tensor, real: Tensor | None) -> Globals | None:
    parts = [chosen] if real is None else [chosen, real]
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
