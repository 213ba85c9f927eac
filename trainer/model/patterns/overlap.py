"""Overlapping blocks: each attends to itself and to half of each neighbour (BART-LS, arXiv:2209.10052, section 2.1)."""

from __future__ import annotations

from collections.abc import Iterator
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
class Overlap(Pattern):
    """Position i of block ``b = i // size`` attends to ``[b size - size / 2, (b + 1) size + size / 2)``."""

    size: int = 1024
    pattern: Literal["overlap"] = "overlap"

    def __post_init__(self) -> None:
        if self.size < 2 or self.size % 2:
            raise FarspanError(
                f"attention pattern overlap: size is {self.size}; it must be even and at least 2, since blocks attend "
                "to half of each neighbour"
            )

    @property
    def unit(self) -> int:
        return self.size

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        parts = [self._attend_part(q, k, v, context, part, dropout, scale) for part in self._parts(q.shape[1])]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _parts(self, length: int) -> Iterator[tuple[int, int, int]]:
        """Yield (start, number, size) of runs of blocks with the same number of keys on each side.

        The first block has no left neighbour, and the last one or two have an incomplete right one: each is a part of
        its own, without padding or masks. All others are one part, whose keys are a view.
        """
        size = self.size
        inner = max(0, (length - size - size // 2) // size)  # blocks 1 ... inner have both halves
        yield 0, 1, min(size, length)
        if inner:
            yield size, inner, size
        start = (inner + 1) * size
        while start < length:
            yield start, 1, min(size, length - start)
            start += size

    def _attend_part(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: Context,
        part: tuple[int, int, int],
        dropout: float,
        scale: float | None,
    ) -> Tensor:
        start, count, rows = part
        half, stop = self.size // 2, start + count * rows
        left, right = min(half, start), min(half, q.shape[1] - stop)
        columns = left + rows + right  # keys of one block

        def blocks(x: Tensor) -> Tensor:
            """Select the part's queries: ``(B, L, ...)`` -> ``(B n, rows, ...)``."""
            return x[:, start:stop].unflatten(1, (count, rows)).flatten(0, 1)

        def windows(x: Tensor) -> Tensor:
            """Select the part's keys: ``(B, L, ...)`` -> ``(B n, columns, ...)``, a view if B is 1."""
            return x[:, start - left : stop + right].unfold(1, columns, self.size).movedim(-1, 2).flatten(0, 1)

        padding_mask = None if context.padding_mask is None else windows(context.padding_mask)
        segments = context.segments
        mask = mask_other_documents(
            padding_mask, *(None, None) if segments is None else (blocks(segments), windows(segments))
        )
        first = half - left
        biases = [bias[:, :rows, first : first + columns] for bias in context.biases]
        mixed = attend(blocks(q), windows(k), windows(v), mask, *biases, dropout=dropout, scale=scale)
        return mixed.reshape(len(q), -1, *q.shape[2:])

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        half = self.size // 2
        queries = torch.arange(min(self.size, length))
        keys = torch.arange(-half, min(self.size + half, length))
        return (keys - queries[:, None],)  # (W, 2 W), smaller for shorter sequences

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        start, half = query // self.size * self.size, self.size // 2
        return (start - half <= key) & (key < start + self.size + half)

    def plan(self, rows: varlen.Rows) -> Plan:
        return varlen.plan_overlaps(rows, self.size)

    def flops(self, length: int, width: int) -> int:
        pairs, half = 0, self.size // 2
        for start in range(0, length, self.size):
            stop = min(start + self.size, length)
            pairs += (stop - start) * (min(stop + half, length) - max(0, start - half))
        return 4 * pairs * width
