"""Chunks of queries of banded attention, with their keys and attention weights.

Everything is computed in float32, or in float64 if the inputs are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

NOBODY = -2
"""Document number of keys that no query attends to."""

LEAST = {"cuda": 1024}
"""Minimum number of queries per chunk, by type of device.

Small chunks suit the caches of a CPU; on a GPU the launches of their kernels dominate: with 1,024 queries, 32,768
positions of LongT5 are 32 chunks instead of 256."""


class Chunk(NamedTuple):
    """C queries of one row, and the W + G keys around them.

    ``own``, ``(ceil(L / block),)`` int64, is the block to which the queries of each block belong: the same, or the one
    before if that one has no side key.
    """

    row: int
    queries: slice  # positions of the C queries
    keys: slice  # positions of the W keys
    q: Tensor  # (H, C, D), scaled
    k: Tensor  # (H, W + G, D)
    v: Tensor  # (H, W + G, D)
    weights: Tensor  # (H, C, W + G) softmax of the scores; zeros where a query attends to no key
    dropout_factors: Tensor | None  # (H, C, W + G), 0 or 1 / (1 - dropout)
    skipped: int  # number of keys of the band that would lie before the start of the sequence
    own: Tensor

    def dropped_weights(self) -> Tensor:
        """``(H, C, W + G)`` weights after dropout."""
        return self.weights if self.dropout_factors is None else self.weights * self.dropout_factors


class Inputs(NamedTuple):
    """Inputs of banded attention: queries, L keys of which each query attends to those within a radius r, G side keys.

    ``near`` is added to the scores of the offsets -r ... r, ``far`` to those of a side key by its distance in blocks,
    1 - G ... G - 1. A query attends only to keys with its own document's number; to all if there are no numbers. Side
    keys with a number below 0 are unused. A side key summarises ``block`` positions; those after the last whole block
    belong to that block.
    """

    q: Tensor  # (B, L, H, D)
    k: Tensor  # (B, L + G, H, D), the side keys last
    v: Tensor
    near: Tensor  # (H, 2 r + 1)
    far: Tensor  # (H, 2 G - 1), of any width where G is 0
    query_documents: Tensor | None  # (B, L) int
    key_documents: Tensor | None  # (B, L + G) int
    seed: Tensor | None  # int64 scalar, the seed of dropout; None if that is 0
    block: int
    scale: float  # factor of the scores
    dropout: float  # probability of dropping an attention weight

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
        """Queries per chunk, C: a multiple of the block size, so that no block of queries is divided."""
        least = LEAST.get(self.q.device.type, 1)
        return min(-(-max(self.radius + 1, least) // self.block) * self.block, self.length)

    @property
    def kind(self) -> torch.dtype:
        """Dtype of the computation."""
        return torch.promote_types(self.q.dtype, torch.float32)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of all rows; every call yields the same ones, with the same dropout."""
        length, radius, kind = self.length, self.radius, self.kind
        band, far = band_of(self.near.to(kind), self.size), self.far.to(kind)
        generator = None
        if self.seed is not None:
            generator = torch.Generator(self.q.device).manual_seed(int(self.seed))
        for row in range(len(self.q)):
            own = self._own_blocks(row)
            for start in range(0, length, self.size):
                stop = min(start + self.size, length)
                queries, keys = slice(start, stop), slice(max(0, start - radius), min(length, stop + radius))
                width, skipped = keys.stop - keys.start, keys.start - (start - radius)
                q = self.q[row, queries].transpose(0, 1).to(kind) * self.scale
                k, v = (_with_sides(x[row], keys, length).transpose(0, 1).to(kind) for x in (self.k, self.v))
                scores = q @ k.mT  # (H, C, W + G)
                scores[..., :width] += band[:, : stop - start, skipped : skipped + width]
                self._add_far(scores[..., width:], far, start, own)
                weights = self._softmax(scores, row, queries, keys)
                dropout_factors = None
                if generator is not None:
                    dropout_factors = torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator)
                    dropout_factors.div_(1 - self.dropout)
                yield Chunk(row, queries, keys, q, k, v, weights, dropout_factors, skipped, own)

    def _own_blocks(self, row: int) -> Tensor:
        blocks = torch.arange(-(-self.length // self.block), device=self.q.device)
        unused = blocks >= self.sides
        if self.key_documents is not None:
            unused[: self.sides] = self.key_documents[row, self.length :] < 0
        return (blocks - unused.long()).clamp_(min=0)

    def _add_far(self, scores: Tensor, far: Tensor, start: int, own: Tensor) -> None:
        """Add the far biases to the scores of side keys, ``(H, C, G)``, of the queries from ``start`` on.

        The biases of side keys that are masked out are arbitrary.
        """
        if not self.sides:
            return
        first = self.sides - 1 - own[start // self.block : -(-(start + scores.shape[1]) // self.block)]
        columns = first[:, None] + torch.arange(self.sides, device=far.device)  # (n, G)
        rest = scores.shape[1] % self.block
        even = scores[:, : scores.shape[1] - rest].unflatten(1, (-1, self.block))  # (H, n or n - 1, block, G)
        even += far[:, columns[: even.shape[1]]].unsqueeze(2)
        if rest:
            scores[:, -rest:] += far[:, columns[-1:]]

    def sum_far(self, dscores: Tensor, start: int, own: Tensor) -> Tensor:
        """The transpose of ``_add_far``: ``(H, C, G)``, the gradient of side keys' scores -> ``(H, 2 G - 1)``."""
        rest = dscores.shape[1] % self.block
        parts = [dscores[:, : dscores.shape[1] - rest].unflatten(1, (-1, self.block)).sum(2)]
        if rest:
            parts.append(dscores[:, -rest:].sum(1, keepdim=True))
        of_blocks = torch.cat(parts, 1)  # (H, n, G)
        first, count, sides = start // self.block, of_blocks.shape[1], self.sides
        moved = (own[first : first + count] != torch.arange(first, first + count, device=dscores.device))[:, None]
        # Block b's scores have the biases from G - 1 - b on, or one later if its queries belong to the block before:
        # flipped, each block's biases begin one later.
        begin = sides - first - count  # -1 if the last block is shorter and has no side key
        same, before = (_sum_shifted(of_blocks.masked_fill(mask, 0.0).flip(1)) for mask in (moved, ~moved))
        return F.pad(same, (begin, first)) + F.pad(before, (begin + 1, first - 1))

    def _softmax(self, scores: Tensor, row: int, queries: slice, keys: slice) -> Tensor:
        if self.query_documents is None or self.key_documents is None:
            return scores.softmax(-1)
        documents = _with_sides(self.key_documents[row], keys, self.length)  # (W + G,)
        hidden = self.query_documents[row, queries, None] != documents  # (C, W + G)
        scores.masked_fill_(hidden, float("-inf"))
        nothing = scores.amax(-1, keepdim=True) == float("-inf")  # (H, C, 1)
        return scores.softmax(-1).masked_fill_(nothing, 0.0)  # instead of NaN


def _with_sides(x: Tensor, keys: slice, length: int) -> Tensor:
    """Select the W keys and the G side keys of ``(L + G, ...)``: ``(W + G, ...)``."""
    return x[keys] if len(x) == length else torch.cat([x[keys], x[length:]])


def band_of(near: Tensor, size: int) -> Tensor:
    """``(H, 2 r + 1)`` by offset -> ``(H, C, C + 2 r)`` by query and key, -inf outside the band."""
    count = near.shape[1]
    places = torch.arange(size + count - 1, device=near.device) - torch.arange(size, device=near.device)[:, None]
    outside = (places < 0) | (places >= count)
    return near[:, places.clamp(0, count - 1)].masked_fill_(outside, float("-inf"))


def sum_diagonals(band: Tensor, count: int) -> Tensor:
    """The transpose of ``band_of``: ``(H, C, C + 2 r)`` -> ``(H, 2 r + 1)``."""
    size = band.shape[1]
    # With rows longer by one, row i begins i numbers later: diagonals become columns.
    return F.pad(band.flatten(1), (0, size)).unflatten(1, (size, -1))[..., :count].sum(1)


def _sum_shifted(blocks: Tensor) -> Tensor:
    """``(H, n, G)`` -> ``(H, n + G - 1)``, the sum over n of each block shifted right by its index."""
    count, width = blocks.shape[1:]
    # With rows shorter by one, row i begins i numbers earlier.
    return F.pad(blocks, (0, count)).flatten(1)[:, : count * (count + width - 1)].unflatten(1, (count, -1)).sum(1)
