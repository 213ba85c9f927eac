"""Blocks, shifted by half a block in every other layer, and learned global tokens.

Source: PEGASUS-X, arXiv:2208.04347, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.kernels import varlen
from trainer.model.kernels.varlen import Plan
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Staggered(Pattern):
    """Position i attends to its own block and to all learned tokens, which attend to all positions.

    Attributes:
        size: block size. The first and the last block may be shorter.
        global_tokens: number of learned tokens, per document if documents do not attend to each other.
        staggered: True to shift the blocks of odd layers, counted from 0, by ``size / 2``, so that positions on either
            side of a block boundary share a block in the next layer.
        shifted: True if the blocks of this layer are shifted; set by ``at``.
    """

    size: int = 512
    global_tokens: int = 128
    staggered: bool = True
    shifted: bool = False
    pattern: Literal["staggered"] = "staggered"

    def __post_init__(self) -> None:
        for name, unit in (("size", "position"), ("global_tokens", "token")):
            if getattr(self, name) < 1:
                raise FarspanError(
                    f"attention pattern staggered: {name} is {getattr(self, name)}; it must be at least 1 {unit}"
                )
        if self.staggered and self.size % 2:
            raise FarspanError(
                f"attention pattern staggered: size is {self.size}, which is odd, so blocks cannot shift by half; "
                f"choose {self.size + 1}, or set staggered = false"
            )

    @property
    def unit(self) -> int:
        return self.size

    @property
    def extra_tokens(self) -> int:
        return self.global_tokens

    def check(self, layers: int) -> None:
        if self.shifted:
            raise FarspanError(
                "model.encoder.attention.shifted is true, but it is set automatically for each layer; leave it out and "
                "set staggered = true for shifts in every other layer"
            )

    def at(self, layer: int) -> Staggered:
        return replace(self, shifted=self.staggered and layer % 2 == 1)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        extra = context.most_documents * self.global_tokens  # G
        known = self._with_extra(context, extra, q.device)
        # (B, G, H, D): the learned tokens attend to all G + L positions, which are contiguous already
        documents = None if known.segments is None else known.segments[:, :extra]
        mask = mask_other_documents(known.padding_mask, documents, known.segments)
        parts = self._parts(q.shape[1] - extra)
        # one split, not a slice per part, because the gradient of a slice is a tensor of full size, mostly zeros
        q_extra, *q_parts = q.split([extra, *(positions for positions, _ in parts)], 1)
        mixed = [attend(q_extra, k, v, mask, dropout=dropout, scale=scale)]
        k_parts, v_parts, mask_parts, segment_parts = (
            _blocks(x, extra, parts) for x in (k, v, known.padding_mask, known.segments)
        )
        for (_, size), q_part, k_blocks, v_blocks, padding_mask, segments in zip(
            parts, q_parts, k_parts, v_parts, mask_parts, segment_parts, strict=True
        ):
            q_blocks = q_part.unflatten(1, (-1, size)).flatten(0, 1)  # (B n, W, H, D)
            mask = mask_other_documents(padding_mask, None if segments is None else segments[:, extra:], segments)
            blocks = attend(q_blocks, k_blocks, v_blocks, mask, dropout=dropout, scale=scale)
            mixed.append(blocks.reshape(len(q), -1, *q.shape[2:]))
        return torch.cat(mixed, 1)

    def _with_extra(self, context: Context, extra: int, device: torch.device) -> Context:
        """Extend the context of L positions to ``G + L``; learned tokens are not padding, and each has a document."""
        padding_mask, segments = context.padding_mask, context.segments
        if padding_mask is not None:
            padding_mask = F.pad(padding_mask, (extra, 0), value=True)
        if segments is not None:
            owners = torch.arange(context.most_documents, device=device).repeat_interleave(self.global_tokens)
            segments = torch.cat([owners.to(segments.dtype).expand(len(segments), -1), segments], 1)
        return context._replace(padding_mask=padding_mask, segments=segments)

    def _parts(self, length: int) -> list[tuple[int, int]]:
        """Return (positions, block size) of runs of equal blocks: half a block if shifted, whole blocks, the remainder.

        A shorter block of its own costs less than padding q, k and v to a whole one.
        """
        first = min(self.size // 2, length) if self.shifted else 0
        rest = (length - first) % self.size
        parts = [(first, first), (length - first - rest, self.size), (rest, rest)]
        return [(positions, size) for positions, size in parts if positions]

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        extra = self.global_tokens
        shift = self.size // 2 if self.shifted else 0
        same_block = (query - extra + shift) // self.size == (key - extra + shift) // self.size
        return (query < extra) | (key < extra) | same_block

    def plan(self, rows: varlen.Rows) -> Plan:
        shift = self.size // 2 if self.shifted else 0
        return varlen.plan_global_tokens(rows, self.size, shift, self.global_tokens)

    def flops(self, length: int, width: int) -> int:
        pairs = self.global_tokens * (self.global_tokens + 2 * length)
        pairs += sum(positions * size for positions, size in self._parts(length))
        return 4 * pairs * width


def _blocks(x: Tensor | None, extra: int, parts: list[tuple[int, int]]) -> list[Any]:
    """Cut ``(B, G + L, ...)`` into the n blocks of every part, each after the learned tokens: ``(B n, G + W, ...)``.

    None gives None for every part.
    """
    if x is None:
        return [None] * len(parts)
    learned, *rest = x.split([extra, *(positions for positions, _ in parts)], 1)
    joined = []
    for part, (_, size) in zip(rest, parts, strict=True):
        blocks = part.unflatten(1, (-1, size))  # (B, n, W, ...)
        before = learned[:, None].expand(-1, blocks.shape[1], *learned.shape[1:])  # (B, n, G, ...)
        joined.append(torch.cat([before, blocks], 2).flatten(0, 1))
    return joined
