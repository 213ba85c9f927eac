"""Relative positions in buckets that add a learned bias to attention scores (T5, arXiv:1910.10683, section 2.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError


@dataclass(frozen=True)
class Buckets:
    """Buckets of distances: one for each small distance, then logarithmically wider ones, the last without an end.

    Attributes:
        count: number of buckets; an encoder uses half of them for each direction.
        distance: distance from which on all distances are in the last bucket, which begins somewhat earlier.
    """

    count: int = 32
    distance: int = 128
    scheme: Literal["buckets"] = "buckets"

    def __post_init__(self) -> None:
        if self.count < 4 or self.count % 4:
            raise FarspanError(f"relative positions: count is {self.count}; it must be a multiple of 4 (T5's is 32)")
        if self.distance <= self.count // 2:
            raise FarspanError(
                f"relative positions: distance is {self.distance} with count {self.count}; it must be above "
                f"{self.count // 2}, half the count (T5's is 128)"
            )

    @property
    def limit(self) -> None:
        """Maximum sequence length: unlimited."""
        return None


def bucket(offset: Tensor, buckets: Buckets, both_ways: bool) -> Tensor:
    """Return the bucket of each offset, key position - query position; int64 of any shape."""
    count = buckets.count
    if both_ways:
        count //= 2
        base, distance = (offset > 0).long() * count, offset.abs()
    else:
        base, distance = torch.zeros_like(offset), (-offset).clamp(min=0)
    exact = count // 2
    # float32 throughout, as in T5: borders between buckets depend on its last bit
    wide = torch.log(distance.clamp(min=1).float() / exact) / math.log(buckets.distance / exact) * (count - exact)
    wide = (exact + wide.long()).clamp(max=count - 1)
    return base + torch.where(distance < exact, distance, wide)


class RelativeBias(nn.Module):
    """A learned bias for each bucket and head.

    Attributes:
        weight: ``(buckets, H)``.
    """

    def __init__(self, buckets: Buckets, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.buckets, self.both_ways = buckets, both_ways
        self.weight = nn.Parameter(torch.empty(buckets.count, heads))

    def forward(self, offsets: Tensor) -> Tensor:
        """Return the biases of offsets of any shape, ``(H, *shape)``."""
        number = bucket(offsets, self.buckets, self.both_ways)
        return self.weight.T[:, number]
