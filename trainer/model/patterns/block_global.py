"""Blocks whose first tokens are global (BART-LS, arXiv:2209.10052, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class BlockGlobal(Pattern):
    """The first ``global_tokens`` positions of every block attend to, and are attended to by, all positions.

    All others attend to their block and to the global positions of every block, each key once. The last block may be
    shorter; its first positions are global like those of any other.
    """

    size: int = 1024
    global_tokens: int = 64
    pattern: Literal["block_global"] = "block_global"
    uses_flex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 1 <= self.global_tokens < self.size:
            raise FarspanError(
                f"attention pattern block_global: global_tokens is {self.global_tokens} with size {self.size}; it must "
                "be from 1 to size - 1 (without global tokens the pattern is 'block', with nothing else 'full')"
            )

    @property
    def unit(self) -> int:
        return self.size

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        length, padding_mask, segments = q.shape[1], context.padding_mask, context.segments
        if length <= self.size:  # every position attends to all others
            return attend(q, k, v, mask_other_documents(padding_mask, segments, segments), dropout=dropout, scale=scale)
        mask = mask_other_documents(padding_mask, None if segments is None else self._globals(segments), segments)
        everywhere = attend(self._globals(q), k, v, mask, dropout=dropout, scale=scale)  # (B, N, H, D)
        whole = length - length % self.size
        parts, done = [], 0
        for start, stop in ((0, whole), (whole, length)):
            size = min(self.size, stop - start)
            if not size:
                break
            blocks, ahead = (stop - start) // size, min(self.global_tokens, size)
            first = everywhere[:, done : done + blocks * ahead].unflatten(1, (blocks, ahead))  # (B, n, g, H, D)
            done += blocks * ahead
            if ahead < size:
                # (B, n, W - g, H, D)
                others = self._attend_others(q, k, v, context, (start, blocks, size), dropout, scale)
                first = torch.cat([first, others], 2)
            parts.append(first.flatten(1, 2))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _attend_others(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: Context,
        part: tuple[int, int, int],
        dropout: float,
        scale: float | None,
    ) -> Tensor:
        """Attend from the positions that are not global, in blocks of equal size."""
        start, blocks, size = part

        def others(x: Tensor) -> Tensor:
            """``(B, L, ...)`` -> ``(B, n, W - g, ...)``."""
            return x[:, start : start + blocks * size].unflatten(1, (blocks, size))[:, :, self.global_tokens :]

        def queries(x: Tensor) -> Tensor:
            return others(x).flatten(0, 1)

        def keys(x: Tensor) -> Tensor:
            """Non-global positions of a block and the global ones of all blocks, ``(B n, W - g + N, ...)``."""
            mine = others(x)
            shared = self._globals(x)[:, None].expand(-1, mine.shape[1], *[-1] * (x.dim() - 1))
            return torch.cat([mine, shared], 2).flatten(0, 1)

        padding_mask, segments = context.padding_mask, context.segments
        mask = mask_other_documents(
            None if padding_mask is None else keys(padding_mask),
            *(None, None) if segments is None else (queries(segments), keys(segments)),
        )
        mixed = attend(queries(q), keys(k), keys(v), mask, dropout=dropout, scale=scale)
        return mixed.unflatten(0, (len(q), -1))

    def _globals(self, x: Tensor) -> Tensor:
        """Select the global positions of all blocks: ``(B, L, ...)`` -> ``(B, N, ...)``."""
        whole = x.shape[1] - x.shape[1] % self.size
        ahead = x[:, :whole].unflatten(1, (-1, self.size))[:, :, : self.global_tokens].flatten(1, 2)
        return torch.cat([ahead, x[:, whole : whole + self.global_tokens]], 1) if whole < x.shape[1] else ahead

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        either = (query % self.size < self.global_tokens) | (key % self.size < self.global_tokens)
        return either | (query // self.size == key // self.size)

    def flops(self, length: int, width: int) -> int:
        ahead, keys = self._counts(length)
        others = sum(count * local * (local + ahead) for count, local in keys)
        return 4 * (ahead * length + others) * width

    def _counts(self, length: int) -> tuple[int, list[tuple[int, int]]]:
        """Return N, and (blocks, non-global positions per block) for the whole blocks and for the last, shorter one."""
        blocks, rest = divmod(length, self.size)
        ahead = blocks * self.global_tokens + min(self.global_tokens, rest)
        return ahead, [(blocks, self.size - self.global_tokens), (1, max(0, rest - self.global_tokens))]
