"""Block attention: disjoint blocks that do not see each other (BART-LS, arXiv:2209.10052, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.attention import attend


@dataclass(frozen=True)
class Block:
    """Position i sees the real positions of block ``i // size``; the last block may be shorter.

    Raises:
        FarspanError: ``size`` below 1.
    """

    size: int = 1024
    pattern: Literal["block"] = "block"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise FarspanError(f"attention pattern block: size is {self.size}; it must be at least 1 position")

    def attend(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, dropout: float = 0.0) -> Tensor:
        length = q.shape[1]
        whole = length - length % self.size
        if whole == length:
            return self._attend_whole(q, k, v, real, dropout)
        # The rest is a block of its own, which costs less than padding q, k and v to a whole one.
        rest = attend(q[:, whole:], k[:, whole:], v[:, whole:], None if real is None else real[:, whole:], dropout)
        if whole == 0:
            return rest
        blocks = self._attend_whole(
            q[:, :whole], k[:, :whole], v[:, :whole], None if real is None else real[:, :whole], dropout
        )
        return torch.cat([blocks, rest], 1)

    def _attend_whole(self, q: Tensor, k: Tensor, v: Tensor, real: Tensor | None, dropout: float) -> Tensor:
        # (B, n W, ...) -> (B n, W, ...): a view where the batch is whole
        q_blocks, k_blocks, v_blocks = (x.unflatten(1, (-1, self.size)).flatten(0, 1) for x in (q, k, v))
        real_blocks = None if real is None else real.reshape(-1, self.size)
        return attend(q_blocks, k_blocks, v_blocks, real_blocks, dropout).reshape(q.shape)

    def dense_mask(self, length: int) -> Tensor:
        block = torch.arange(length) // self.size
        return block[:, None] == block[None, :]

    def flops(self, length: int, width: int) -> int:
        blocks, rest = divmod(length, self.size)
        return 4 * (blocks * self.size**2 + rest**2) * width
