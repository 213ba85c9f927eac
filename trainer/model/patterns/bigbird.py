"""Blocks with their neighbours, two global blocks and random ones (BigBird, arXiv:2007.14062, section 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from trainer.model.context import Context, on_host, remember_per_batch
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class BigBird(Pattern):
    """Position i attends to its block, to both neighbours, to the first and the last block, and to random blocks.

    The first and the last block attend to all positions; the last one may be shorter. A row of at most
    ``(5 + 2 * random) * size`` positions has full attention. Both follow from the row's own length, without its
    padding, which must be on the right, so that a row does not depend on the rows beside it; ``length`` of ``mask_mod``
    is that length. Hugging Face's class takes the length of the padded batch.

    Attributes:
        size: block size.
        random: number of random blocks for each block that is not global.
        draw: ``keyed``: other blocks than those above, drawn by the numbers of layer and blocks, the same for all heads
            and rows; ``first``: the first block, which then counts ``1 + random`` times, as Hugging Face's class
            computes it outside of training.
        index: 0-based layer; set by ``at``.
    """

    size: int = 64
    random: int = 3
    draw: Literal["keyed", "first"] = "keyed"
    index: int = 0
    pattern: Literal["bigbird"] = "bigbird"
    compiles: ClassVar[bool] = False  # the table of blocks depends on the length

    def __post_init__(self) -> None:
        if self.size < 1 or self.random < 0:
            raise FarspanError(
                f"attention pattern bigbird: size is {self.size} and random is {self.random}; give at least 1 position "
                "and 0 blocks"
            )

    @property
    def unit(self) -> None:
        return None  # the first and the last block are the row's

    def check(self, layers: int) -> None:
        if self.index:
            raise FarspanError(
                f"model.encoder.attention.index is {self.index}, but it is set automatically for each layer; leave it "
                "out"
            )

    def at(self, layer: int) -> BigBird:
        return replace(self, index=layer)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        length, padding_mask, segments = q.shape[1], context.padding_mask, context.segments
        if self._is_full(length):
            return attend(q, k, v, mask_other_documents(padding_mask, segments, segments), dropout=dropout, scale=scale)
        blocks = -(-length // self.size)
        keys, last = remember_per_batch(
            (padding_mask,), (self, q.shape[:2], q.device), lambda: self._layout(padding_mask, q)
        )
        rows = torch.arange(len(q), device=q.device)

        def cut(x: Tensor) -> Tensor:  # (B, L, ...) -> (B, n, W, ...)
            return F.pad(x, (*[0] * (2 * x.dim() - 4), 0, blocks * self.size - length)).unflatten(1, (blocks, -1))

        def near(x: Tensor) -> Tensor:  # (B, L, ...) -> (B n, K W, ...)
            return cut(x)[rows[:, None, None], keys.clamp(min=0)].flatten(2, 3).flatten(0, 1)

        def ends(x: Tensor) -> Tensor:  # (B, L, ...) -> (B, 2 W, ...)
            return cut(x)[rows[:, None], torch.stack([torch.zeros_like(last), last], 1)].flatten(1, 2)

        real = q.new_ones(q.shape[:2], dtype=torch.bool) if padding_mask is None else padding_mask
        known = near(real) & (keys >= 0).flatten(0, 1).repeat_interleave(self.size, 1)
        pairs = (None, None) if segments is None else (cut(segments).flatten(0, 1), near(segments))
        mixed = attend(
            cut(q).flatten(0, 1), near(k), near(v), mask_other_documents(known, *pairs), dropout=dropout, scale=scale
        )
        mixed = mixed.unflatten(0, (len(q), blocks))  # (B, n, W, H, D)

        mask = mask_other_documents(padding_mask, None if segments is None else ends(segments), segments)
        whole = attend(ends(q), k, v, mask, dropout=dropout, scale=scale).unflatten(1, (2, -1))  # (B, 2, W, H, D)
        is_last = torch.arange(blocks, device=q.device) == last[:, None]  # (B, n)
        is_end = is_last.index_fill(1, last.new_zeros(1), True)
        mixed = torch.where(is_end[..., None, None, None], whole[rows[:, None], is_last.long()], mixed)
        return mixed.flatten(1, 2)[:, :length]

    def _layout(self, padding_mask: Tensor | None, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the blocks that each block attends to, ``(B, n, K)``, -1 for none, and the last one, ``(B,)``; int64.

        The first and the last block are left out: they attend to all.
        """
        length, size = q.shape[1], self.size
        lengths = [length] * len(q) if padding_mask is None else on_host(padding_mask).sum(1).tolist()
        keys = np.full((len(q), -(-length // size), 5 + 2 * self.random), -1)
        for row, own in zip(keys, lengths, strict=True):
            blocks = max(1, -(-own // size))
            if self._is_full(own):
                row[:blocks, :blocks] = np.arange(blocks)
                continue
            for query, counts in enumerate(_counts(self, blocks)[1:-1], 1):
                known = np.repeat(np.arange(blocks), counts)
                row[query, : len(known)] = known
        last = [max(0, (own - 1) // size) for own in lengths]
        return torch.from_numpy(keys).to(q.device), torch.tensor(last, device=q.device)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        if self._is_full(length):
            return torch.ones_like(query + key, dtype=torch.bool)
        blocks = -(-length // self.size)
        counts = torch.from_numpy(_counts(self, blocks)).to(query.device)
        return counts[(query // self.size).clamp(max=blocks - 1), (key // self.size).clamp(max=blocks - 1)] > 0

    def flops(self, length: int, width: int) -> int:
        if self._is_full(length):
            return 4 * length * length * width
        blocks = -(-length // self.size)
        sizes = np.full(blocks, self.size)
        sizes[-1] = length - (blocks - 1) * self.size
        return 4 * int(sizes @ _counts(self, blocks) @ sizes) * width

    def _is_full(self, length: int) -> bool:
        return length <= (5 + 2 * self.random) * self.size


@lru_cache(maxsize=256)
def _counts(pattern: BigBird, blocks: int) -> np.ndarray:
    """Return how often each block of queries attends to each block of keys, ``(n, n)`` int64."""
    places = np.arange(blocks)
    counts = (np.abs(places[:, None] - places) <= 1).astype(np.int64)
    counts[:, [0, -1]] = counts[[0, -1]] = 1
    inner = places[1:-1]
    if pattern.draw == "first":
        counts[inner, 0] += pattern.random
        return counts
    key = make_key(0, "bigbird", {"layer": pattern.index})
    draws = id_keys(key, (f"{query} {other}" for query in inner for other in places))[:, 0].reshape(-1, blocks)
    draws = np.where(counts[1:-1] > 0, np.iinfo(np.uint64).max, draws)
    chosen = draws.argsort(axis=1, kind="stable")[:, : pattern.random]
    counts[inner[:, None], chosen] = 1
    return counts
