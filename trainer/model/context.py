"""The context of a batch: the inputs of layers besides the hidden states, each computed once per batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_originals: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def send(x: Tensor, device: torch.device) -> Tensor:
    """Copy ``x`` to ``device`` and keep ``x`` as long as the copy exists.

    Neither tensor may be written to. From pinned memory the copy is asynchronous.
    """
    if x.device == device:
        return x
    if device.type == "cuda" and not x.is_pinned():
        x = x.pin_memory()
    copy = x.to(device, non_blocking=True)
    if x.device.type == "cpu":
        _originals[copy] = x
    return copy


@torch.compiler.disable
def on_host(x: Tensor) -> Tensor:
    """Return the CPU tensor that ``send`` copied to ``x``, or ``x`` itself if there is none."""
    return _originals.get(x, x)


def derive_per_batch(make: Callable[..., Tensor], tensors: tuple[Tensor | None, ...], *sizes: object) -> Tensor:
    """Compute ``make(*tensors, *sizes)`` once per batch, also on the host if it has copies of all tensors."""
    device = next(x.device for x in tensors if x is not None)
    if device.type == "cpu" or torch.compiler.is_compiling():
        return make(*tensors, *sizes)

    def made() -> Tensor:
        result = make(*tensors, *sizes)
        known = [None if x is None else on_host(x) for x in tensors]
        if all(x is None or x.device.type == "cpu" for x in known):
            _originals[result] = make(*known, *sizes)
        return result

    return remember_per_batch(tensors, (make, sizes), made)


Made = TypeVar("Made")
_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_NO_TENSOR = torch.empty(0)
_MOST = 256  # results per batch, or altogether for batches without tensors


@torch.compiler.disable
def remember_per_batch(tensors: tuple[Tensor | None, ...], key: Hashable, make: Callable[[], Made]) -> Made:
    """Return ``make()``, computed once for these tensor objects and this key."""
    given = tuple(x for x in tensors if x is not None)
    first, *others = given or (_NO_TENSOR,)
    made = _made.setdefault(first, {})
    key = (key, tuple(x is None for x in tensors))
    known, result = made.get(key, (None, None))
    if known is None or any(a is not b for a, b in zip(known, others, strict=True)):
        if len(made) >= _MOST:
            made.clear()
        result = make()
        made[key] = (others, result)
    return result


class Globals(NamedTuple):
    """Source positions with global attention (Longformer, arXiv:2004.05150, section 3.1)."""

    at: Tensor  # (B, G) int64, indices in ascending order, padded with 0
    padding_mask: Tensor  # (B, G) bool, False at padding
    chosen: Tensor  # (B, L) bool


class Context(NamedTuple):
    """Masks, documents and position terms of a batch, made once per batch and read by every layer.

    ``segments`` are the document (0, 1, ..., -1 at padding) of each position; None if documents may attend to each
    other. ``biases`` are added to attention scores, one tensor for each of the pattern's ``offsets``. ``side_mask`` and
    ``side_segments`` are those of the encoder's keys in merged cross-attention. ``places`` are the positions of tokens
    in their examples, in packed rows; None if they are those in the row.
    """

    padding_mask: Tensor | None = None  # (B, L) bool, False at padding
    segments: Tensor | None = None  # (B, L) int
    most_documents: int = 1  # largest number of documents in a row
    globals: Globals | None = None
    biases: tuple[Tensor, ...] = ()  # (H, *offsets.shape) each
    rotation: tuple[Tensor, Tensor] | None = None  # cosines and sines of rotary positions, (L, D) each
    local_rotation: tuple[Tensor, Tensor] | None = None  # of local patterns, if they have a base of their own
    side_mask: Tensor | None = None  # (B, S) bool, False at padding
    side_segments: Tensor | None = None  # (B, S) int
    places: Tensor | None = None  # (B, L) int64

    def rotation_of(self, local: bool) -> tuple[Tensor, Tensor] | None:
        """Return the rotation of a local pattern, or of any other."""
        return self.local_rotation if local and self.local_rotation else self.rotation


def make_context(
    padding_mask: Tensor | None = None,
    segments: Tensor | None = None,
    global_positions: Tensor | None = None,
    packed: bool = False,
) -> Context:
    """Make a context without positional terms, which the encoder or decoder adds.

    Arguments are ``(B, L)``: ``padding_mask`` is False at padding, ``segments`` as in ``Context``, ``global_positions``
    True at positions with global attention. ``packed`` says that segments are examples, whose positions begin at 0.
    """
    most_documents = 1 if segments is None else max(1, int(on_host(segments).max()) + 1)
    return Context(
        padding_mask,
        segments,
        most_documents,
        None if global_positions is None else _gather_globals(global_positions, padding_mask),
        places=None if segments is None or not packed else derive_per_batch(_places, (segments,)),
    )


def _places(segments: Tensor) -> Tensor:
    """Index of each position in its run of equal ``(B, L)`` segments, int64."""
    index = torch.arange(segments.shape[1], device=segments.device).expand(segments.shape)
    begins = torch.cat([index[:, :1] == 0, segments[:, 1:] != segments[:, :-1]], 1)
    return index - torch.where(begins, index, 0).cummax(1).values


def _gather_globals(chosen: Tensor, padding_mask: Tensor | None) -> Globals | None:
    parts = [chosen] if padding_mask is None else [chosen, padding_mask]
    known = [on_host(x) for x in parts]
    known = known if len({x.device for x in known}) == 1 else parts
    most = int(torch.stack(known).all(0).sum(1).max()) if len(chosen) else 0
    chosen = torch.stack(parts).all(0)
    counts = chosen.sum(1)  # (B,)
    if not most:
        return None
    inside = torch.arange(most, device=chosen.device) < counts[:, None]  # (B, G)
    # A stable sort puts the chosen positions first, in ascending order within each row.
    at = chosen.logical_not().to(torch.uint8).argsort(dim=1, stable=True)[:, :most]
    return Globals(at.masked_fill(~inside, 0), inside, chosen)


def number_documents(context: Context, batch: int, length: int, device: torch.device) -> Tensor:
    """Return the document of each position, ``(B, L)`` int64, -1 at padding; all 0 without documents."""
    segments, padding_mask = context.segments, context.padding_mask
    documents = torch.zeros(batch, length, dtype=torch.int64, device=device) if segments is None else segments.long()
    return documents if padding_mask is None else documents.masked_fill(~padding_mask, -1)
