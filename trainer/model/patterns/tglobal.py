"""A sliding window and one transient global token per block (LongT5 TGlobal, arXiv:2112.07916, section 3.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.errors import FarspanError
from trainer.model.context import Context, number_documents
from trainer.model.kernels.banded import attend_banded
from trainer.model.kernels.choose import attend_within
from trainer.model.kernels.chunks import NOBODY
from trainer.model.layers.attention import SelfAttention
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import NormConfig, make_norm
from trainer.model.pattern import Pattern, ScoreMod, SideKeys
from trainer.model.patterns.local import MOST_POSITIONS, near_bias
from trainer.model.patterns.span import count_pairs
from trainer.model.positions import rotate


@dataclass(frozen=True)
class TGlobal(Pattern):
    """Position i attends to the positions j with ``|i - j| <= radius``, and to a summary of each block of ``block``.

    The summaries are keys and values computed in every layer: a block's hidden states are summed, normalised and
    projected like those of positions. Positions after a row's last whole block belong to that block; a row shorter than
    a block has no summaries. If documents must not attend to each other, a block belongs to the document of its first
    position, and only positions of that document are summed and attend to it. In packed rows, where examples begin with
    a block, the positions after an example's last whole block belong to that block.
    """

    radius: int = 127
    block: int = 16
    pattern: Literal["tglobal"] = "tglobal"
    uses_flex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("radius", "block"):
            if not 1 <= getattr(self, name) <= MOST_POSITIONS:
                raise FarspanError(
                    f"attention pattern tglobal: {name} is {getattr(self, name)}; it must be from 1 to "
                    f"{MOST_POSITIONS} positions"
                )

    @property
    def unit(self) -> int:
        return self.block

    def layer(self, width: int, heads: HeadsConfig, norm: NormConfig, dropout: float) -> TGlobalAttention:
        return TGlobalAttention(width, heads, self, dropout, make_norm(width, norm))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        documents = self.side_documents(context, q.shape[1])
        return attend_banded(q, k, v, context, self.radius, self.block, documents, dropout, scale)

    def side_documents(self, context: Context, length: int) -> Tensor | None:
        if context.padding_mask is None and context.segments is None:
            return None
        documents = _documents(context)
        places = torch.arange(length // self.block, device=documents.device)
        first = documents[:, :: self.block][:, : len(places)]
        if context.places is None:
            return first.masked_fill(places >= self._whole_blocks(context, length)[:, None], NOBODY)
        return first.masked_fill(first != documents[:, self.block - 1 :: self.block], NOBODY)

    def sum_blocks(self, x: Tensor, context: Context) -> Tensor:
        """Sum the hidden states of each block: ``(B, L, d)`` -> ``(B, L // block, d)``."""
        length, size = x.shape[1], self.block
        owners = self.side_documents(context, length)
        if owners is None:
            owners = torch.zeros(1, length // size, dtype=torch.int64, device=x.device)
        elif owners.shape[1]:
            # (B, L): positions without a summary of their own block belong to the block before
            block = torch.arange(length, device=x.device).expand(len(x), -1) // size
            unused = F.pad(owners, (0, 1), value=NOBODY).gather(1, block) < 0
            documents = _documents(context)
            owner = owners.gather(1, (block - unused.long()).clamp(0, owners.shape[1] - 1))
            x = x.masked_fill(((documents != owner) | (documents < 0))[..., None], 0.0)
        sums = F.pad(x, (0, 0, 0, -length % size)).unflatten(1, (-1, size)).sum(2)  # (B, ceil(L / block), d)
        last = F.pad(owners[:, 1:], (0, 1), value=NOBODY) < 0  # (1 or B, L // block)
        rest = F.pad(sums[:, 1:], (0, 0, 0, 1))[:, : length // size]
        return sums[:, : length // size] + rest * last[..., None]

    def _whole_blocks(self, context: Context, length: int) -> Tensor:
        """Count the whole blocks of each row, ``(B,)`` int64."""
        places = torch.arange(1, length + 1, device=_documents(context).device)
        return ((_documents(context) >= 0) * places).amax(1) // self.block

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        most = max(1, length // self.block)
        return torch.arange(-self.radius, self.radius + 1), torch.arange(1 - most, most)  # (2 r + 1,), (2 G - 1,)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        # keys from ``length`` on are summaries
        return (key >= length) | ((query - key).abs() <= self.radius)

    def score_mod(self, biases: tuple[Tensor, ...], sides: SideKeys | None) -> ScoreMod:
        near = biases[0]
        if sides is None:
            return lambda score, b, h, q, k: score + near_bias(near, self.radius, h, q, k)
        beyond = sides.padded - sides.count
        far = F.pad(biases[1], (beyond, beyond))  # keeps the distance 0 in the middle

        def add(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            block = (q // self.block).clamp(max=sides.padded - 1)
            own = torch.where(sides.unused[b, block], block - 1, block)
            distance = (k - sides.start - own + sides.padded - 1).clamp(0, 2 * sides.padded - 2)
            near_score = near_bias(near, self.radius, h, q, k)
            return score + torch.where(k >= sides.start, far[h, distance], near_score)

        return add

    def flops(self, length: int, width: int) -> int:
        return 4 * (count_pairs(length, self.radius, self.radius) + length * (length // self.block)) * width

    def extra_flops(self, length: int, width: int, inner: int, global_positions: int) -> int:
        return 4 * width * inner * (length // self.block)  # keys and values of the summaries


class TGlobalAttention(SelfAttention):
    """Self-attention to a window and to the summaries of all blocks.

    With rotary positions a summary has the position of its block's first token.
    """

    def __init__(self, width: int, heads: HeadsConfig, pattern: TGlobal, dropout: float, norm: nn.Module) -> None:
        super().__init__(width, heads, pattern, dropout)
        self.summary, self.side_norm = pattern, norm

    def mix(self, x: Tensor, context: Context, states: Tensor | None = None) -> Tensor:
        """Attend before the output projection: ``(B, L, d)`` to the values of every head, ``(B, L, H, D)``."""
        length = x.shape[1]
        sides = self.side_norm(self.summary.sum_blocks(x, context)).to(x.dtype)
        q, k, v = self.project(torch.cat([x, sides], 1))
        q = q[:, :length]
        if context.rotation is not None:
            q = rotate(q, context.rotation)
            cosines, sines = (
                torch.cat([part, part[:: self.summary.block][: sides.shape[1]]]) for part in context.rotation
            )
            k = rotate(k, (cosines, sines))
        dropout = self.dropout if self.training else 0.0
        return attend_within(self.summary, q, k, v, context, dropout, self.scale)


def _documents(context: Context) -> Tensor:
    """Return the documents of positions, ``(B, L)`` int64, ``NOBODY`` at padding; needs a padding mask or segments."""
    given = context.padding_mask if context.segments is None else context.segments
    assert given is not None
    documents = number_documents(context, len(given), given.shape[1], given.device)
    return documents.masked_fill(documents < 0, NOBODY)
