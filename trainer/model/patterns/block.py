"""Block attention: disjoint blocks that do not attend to each other (BART-LS, arXiv:2209.10052, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.kernels import varlen
from trainer.model.kernels.varlen import Plan
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Block(Pattern):
    """Position i attends to block ``i // size``; the last block may be shorter."""

    size: int = 1024
    pattern: Literal["block"] = "block"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise FarspanError(f"attention pattern block: size is {self.size}; it must be at least 1 position")

    @property
    def unit(self) -> int:
        return self.size

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        length = q.shape[1]
        whole = length - length % self.size
        # The remainder is a block of its own, which costs less than padding q, k and v to a whole block.
        parts = [
            self._attend_part(q, k, v, context, slice(start, stop), dropout, scale)
            for start, stop in ((0, whole), (whole, length))
            if start < stop
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _attend_part(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, part: slice, dropout: float, scale: float | None
    ) -> Tensor:
        """Attend among the positions in ``part``, which are whole blocks or one shorter block."""
        size = min(self.size, part.stop - part.start)
        # (B, n W, ...) -> (B n, W, ...): a view where the batch is whole
        q_blocks, k_blocks, v_blocks = (x[:, part].unflatten(1, (-1, size)).flatten(0, 1) for x in (q, k, v))
        padding_mask = None if context.padding_mask is None else context.padding_mask[:, part].reshape(-1, size)
        segments = None if context.segments is None else context.segments[:, part].reshape(-1, size)
        biases = [bias[:, :size, :size] for bias in context.biases]
        mask = mask_other_documents(padding_mask, segments, segments)
        mixed = attend(q_blocks, k_blocks, v_blocks, mask, *biases, dropout=dropout, scale=scale)
        return mixed.reshape(len(q), -1, *q.shape[2:])

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        places = torch.arange(min(self.size, length))
        return (places - places[:, None],)  # (W, W)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return query // self.size == key // self.size

    def plan(self, rows: varlen.Rows) -> Plan:
        return varlen.plan_blocks(rows, self.size)

    def flops(self, length: int, width: int) -> int:
        blocks, rest = divmod(length, self.size)
        return 4 * (blocks * self.size**2 + rest**2) * width
