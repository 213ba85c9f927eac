"""Queries of a band, a chunk after another: the keys that they meet, and the weights between them.

All is computed in float32, or float64 where the inputs are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST = {"cuda": 1024}
"""Queries of a chunk at least, by device: small chunks suit the caches of a CPU, while a GPU waits for each of their
kernels to be launched. 1,024 are 4 chunks of LongT5's 4,096 positions in place of 32."""


class Chunk(NamedTuple):
    """C queries of one row and the W + G keys that they meet.

    Attributes:
        row: of the batch.
        queries, keys: places of the C and of the W.
        q, k, v: ``(H, C, D)``, scaled, and ``(H, W + G, D)`` twice.
        weights: ``(H, C, W + G)`` softmax of the scores; zeros where a query sees no key.
        kept: ``(H, C, W + G)``, what dropout multiplies the weights by; None where there is none.
        skipped: keys that the band would begin with, had the sequence begun earlier.
        far_starts: for each block of queries, its first column of the far biases; empty where there are no side keys.
    """

    row: int
    queries: slice
    keys: slice
    q: Tensor
    k: Tensor
    v: Tensor
    weights: Tensor
    kept: Tensor | None
    skipped: int
    far_starts: list[int]

    def dropped(self) -> Tensor:
        """``(H, C, W + G)`` weights after dropout."""
        return self.weights if self.kept is None else self.weights * self.kept


class Inputs(NamedTuple):
    """The arguments of ``banded_attention``, where they are described."""

    q: Tensor
    k: Tensor
    v: Tensor
    near: Tensor
    far: Tensor
    query_documents: Tensor | None
    key_documents: Tensor | None
    seed: Tensor | None
    block: int
    scale: float
    dropout: float

    @property
    def length(self) -> int:
        """L."""
        return self.q.shape[1]

    @property
    def sides(self) -> int:
        """G."""
        return self.k.shape[1] - self.q.shape[1]

    @property
    def radius(self) -> int:
        """r."""
        return self.near.shape[1] // 2

    @property
    def size(self) -> int:
        """C, of whole blocks, so that each block of queries is in one chunk."""
        least = LEAST.get(self.q.device.type, 1)
        return min(-(-max(self.radius + 1, least) // self.block) * self.block, self.length)

    @property
    def kind(self) -> torch.dtype:
        """What all is computed in."""
        return torch.promote_types(self.q.dtype, torch.float32)

    def chunks(self) -> Iterator[Chunk]:
        """Chunk after chunk of each row; the same ones, dropout included, whenever asked."""
        length, radius, kind = self.length, self.radius, self.kind
        band, far = _band(self.near.to(kind), self.size), self.far.to(kind)
        generator = None
        if self.seed is not None:
            generator = torch.Generator(self.q.device).manual_seed(int(self.seed))
        for row in range(len(self.q)):
            whole = self._whole_blocks(row)
            for start in range(0, length, self.size):
                stop = min(start + self.size, length)
                queries, keys = slice(start, stop), slice(max(0, start - radius), min(length, stop + radius))
                width, skipped = keys.stop - keys.start, keys.start - (start - radius)
                q = self.q[row, queries].transpose(0, 1).to(kind) * self.scale
                k, v = (_with_sides(x[row], keys, length).transpose(0, 1).to(kind) for x in (self.k, self.v))
                scores = q @ k.mT  # (H, C, W + G)
                scores[..., :width] += band[:, : stop - start, skipped : skipped + width]
                far_starts = self._far_starts(start, stop, whole)
                for number, first in enumerate(far_starts):
                    of_block = scores[:, number * self.block : (number + 1) * self.block, width:]
                    of_block += far[:, None, first : first + self.sides]
                weights = self._softmax(scores, row, queries, keys)
                kept = None
                if generator is not None:
                    kept = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator)
                    kept.div_(1 - self.dropout)
                yield Chunk(row, queries, keys, q, k, v, weights, kept, skipped, far_starts)

    def _whole_blocks(self, row: int) -> int:
        """How many blocks of the row have a side key."""
        if self.key_documents is None or not self.sides:
            return self.sides
        there = (self.key_documents[row, self.length :] >= 0).nonzero()
        return int(there[-1]) + 1 if len(there) else 0

    def _far_starts(self, start: int, stop: int, whole: int) -> list[int]:
        """Of a chunk's queries, in a row with side keys for ``whole`` blocks."""
        blocks = range(start, stop, self.block) if whole else ()
        return [self.sides - 1 - min(at // self.block, whole - 1) for at in blocks]

    def _softmax(self, scores: Tensor, row: int, queries: slice, keys: slice) -> Tensor:
        if self.query_documents is None or self.key_documents is None:
            return scores.softmax(-1)
        documents = _with_sides(self.key_documents[row], keys, self.length)  # (W + G,)
        hidden = self.query_documents[row, queries, None] != documents  # (C, W + G)
        scores.masked_fill_(hidden, float("-inf"))
        nothing = scores.amax(-1, keepdim=True) == float("-inf")  # (H, C, 1)
        return scores.softmax(-1).masked_fill_(nothing, 0.0)  # instead of NaN


def _with_sides(x: Tensor, keys: slice, length: int) -> Tensor:
    """``(L + G, ...)`` -> ``(W + G, ...)``."""
    return x[keys] if len(x) == length else torch.cat([x[keys], x[length:]])


def _band(near: Tensor, size: int) -> Tensor:
    """``(H, 2 r + 1)`` by offset -> ``(H, C, C + 2 r)`` by query and key, -inf outside the band."""
    count = near.shape[1]
    places = torch.arange(size + count - 1, device=near.device) - torch.arange(size, device=near.device)[:, None]
    outside = (places < 0) | (places >= count)
    return near[:, places.clamp(0, count - 1)].masked_fill_(outside, float("-inf"))


def sum_diagonals(band: Tensor, count: int) -> Tensor:
    """The transpose of ``_band``: ``(H, C, C + 2 r)`` -> ``(H, 2 r + 1)``."""
    size = band.shape[1]
    # Cut into rows longer by one, row i begins i numbers later: diagonals become columns.
    return F.pad(band.flatten(1), (0, size)).unflatten(1, (size, -1))[..., :count].sum(1)
