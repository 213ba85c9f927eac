"""Positions: vectors added to token vectors (learned, sinusoidal), biases of attention scores, rotations.

Relative positions in buckets add a learned bias (T5, arXiv:1910.10683, section 2.1); rotary ones rotate queries and
keys by their position (RoFormer, arXiv:2104.09864, section 3.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from corpora.errors import FarspanError


@dataclass(frozen=True)
class Learned:
    """Learned position vectors.

    Attributes:
        count: number of rows, which is the maximum sequence length.
    """

    count: int
    scheme: Literal["learned"] = "learned"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FarspanError(f"learned positions: count is {self.count}; it must be at least 1")

    @property
    def limit(self) -> int:
        """Maximum sequence length."""
        return self.count


@dataclass(frozen=True)
class Sinusoidal:
    """Sinusoidal position vectors, sines in the first half and cosines in the second, without a maximum length.

    Attributes:
        variant: ``pegasus``: wave i of pair i has length ``2 pi base^(2i / d)`` (Vaswani et al. 2017); ``pegasus_x``:
            the d / 2 lengths are spread from 2 pi to exactly 2 pi ``base``, as in the released PEGASUS-X.
        base: quotient of the longest and the shortest wave; PEGASUS-X's table 9 compares 10,000 with 50,000.
    """

    variant: Literal["pegasus", "pegasus_x"] = "pegasus"
    scheme: Literal["sinusoidal"] = "sinusoidal"
    base: float = 10_000.0
    limit: ClassVar[None] = None  # no maximum sequence length

    def __post_init__(self) -> None:
        if not 1 < self.base < math.inf:
            raise FarspanError(f"sinusoidal positions: base is {self.base}; it must be above 1 and finite")


@dataclass(frozen=True)
class NoPositions:
    """No information on positions (PEGASUS-X, table 8)."""

    scheme: Literal["none"] = "none"
    limit: ClassVar[None] = None  # no maximum sequence length


class LearnedPositions(nn.Module):
    """A table with one row per position, ``(positions, d)``."""

    def __init__(self, positions: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(positions, width))

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the vectors of the positions of ``(B, L, d)`` token vectors, ``(L, d)``, or of ``(B, L)`` places."""
        length = tokens.shape[1]
        if length > len(self.weight):
            raise FarspanError(
                f"a sequence has {length} positions, the model has {len(self.weight)}; raise `positions.count` in the "
                "model's section or shorten the data"
            )
        return self.weight[:length] if places is None else self.weight[places]


class SinusoidalPositions(nn.Module):
    """Sinusoidal vectors, computed for the longest sequence so far and not stored in checkpoints."""

    def __init__(self, sinusoidal: Sinusoidal) -> None:
        super().__init__()
        self.sinusoidal = sinusoidal
        self._table = torch.empty(0, 0)

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """Return the vectors of the positions of ``(B, L, d)`` token vectors, ``(L, d)``, or of ``(B, L)`` places."""
        length, width = tokens.shape[1:]
        if len(self._table) < length or self._table.device != tokens.device:
            self._table = self._waves(length, width).to(tokens.device)
        return (self._table[:length] if places is None else self._table[places]).to(tokens.dtype)

    def _waves(self, length: int, width: int) -> Tensor:
        half = width // 2
        # Each variant has the precision of its original: at position 16,384 float32 is off by a thousandth.
        exact, base = self.sinusoidal.variant == "pegasus", self.sinusoidal.base
        kind = torch.float64 if exact else torch.float32
        steps = torch.arange(half, dtype=kind)
        if exact:
            angles = torch.arange(length, dtype=kind)[:, None] / base ** (2 * steps / width)  # (L, d / 2)
        else:
            angles = torch.arange(length)[:, None] * torch.exp(steps * -(math.log(base) / (half - 1)))
        return torch.cat([angles.sin(), angles.cos()], -1).float()


def tile_positions(rows: Tensor, length: int) -> Tensor:
    """Repeat a short model's ``(P, d)`` rows until there are ``length``, so that each block starts at its row 0."""
    return rows.repeat(-(-length // len(rows)), 1)[:length]


@dataclass(frozen=True)
class Buckets:
    """Buckets of distances: one for each small distance, then logarithmically wider ones, the last without an end.

    Attributes:
        count: number of buckets; an encoder uses half of them for each direction.
        distance: distance from which on all distances are in the last bucket, which begins somewhat earlier.
        per_layer: a table for each layer, as in umT5, in place of one for all.
    """

    count: int = 32
    distance: int = 128
    per_layer: bool = False
    scheme: Literal["buckets"] = "buckets"
    limit: ClassVar[None] = None  # no maximum sequence length

    def __post_init__(self) -> None:
        if self.count < 4 or self.count % 4:
            raise FarspanError(f"relative positions: count is {self.count}; it must be a multiple of 4 (T5's is 32)")
        if self.distance <= self.count // 2:
            raise FarspanError(
                f"relative positions: distance is {self.distance} with count {self.count}; it must be above "
                f"{self.count // 2}, half the count (T5's is 128)"
            )


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
    """A learned bias for each bucket and head, ``(buckets, H)``; with a table for each layer, layer after layer."""

    def __init__(self, buckets: Buckets, heads: int, both_ways: bool, layers: int = 1) -> None:
        super().__init__()
        self.buckets, self.both_ways = buckets, both_ways
        self.weight = nn.Parameter(torch.empty(buckets.count * (layers if buckets.per_layer else 1), heads))

    def forward(self, offsets: Tensor, layer: int = 0) -> Tensor:
        """Return the biases of offsets of any shape in the 0-based ``layer``, ``(H, *shape)``."""
        number = bucket(offsets, self.buckets, self.both_ways)
        if self.buckets.per_layer:
            number = number + layer * self.buckets.count
        return self.weight.T[:, number]


@dataclass(frozen=True)
class Rotary:
    """Rotary positions, without parameters or a maximum length; only differences of positions matter.

    Attributes:
        theta: base of the wavelengths, ``2 pi theta^(2i / D)`` positions for pair i.
        local_theta: base in layers whose pattern is ``span``, which are never scaled; None is as in all others.
        factor: factor by which ``scaling`` extends the range of positions.
        scaling: ``linear`` divides positions by the factor (arXiv:2306.15595); ``ntk`` raises the base so that the
            longest wave is ``factor`` times as long, and short ones hardly change; ``yarn`` stretches only waves that
            are long for ``trained_length``, and scales cosines and sines by ``.1 ln factor + 1`` (arXiv:2309.00071).
        trained_length: positions that the model was trained with before the extension; needed by ``yarn``.
    """

    theta: float = 10_000.0
    local_theta: float | None = None
    factor: float = 1.0
    scaling: Literal["linear", "ntk", "yarn"] = "linear"
    trained_length: int | None = None
    scheme: Literal["rotary"] = "rotary"
    limit: ClassVar[None] = None  # no maximum sequence length

    def __post_init__(self) -> None:
        for name in ("theta", "local_theta"):
            value = getattr(self, name)
            if value is not None and not 1 < value < math.inf:
                raise FarspanError(f"rotary positions: {name} is {value}; it must be above 1 (usual: 10,000)")
        if not 1 <= self.factor < math.inf:
            raise FarspanError(f"rotary positions: factor is {self.factor}; it must be at least 1 and finite")
        if (self.trained_length or 0) < (self.scaling == "yarn"):
            raise FarspanError(
                f"rotary positions: trained_length is {self.trained_length}; yarn needs the number of positions that "
                "the model was trained with"
            )

    def rotation(
        self, length: int, head_width: int, device: torch.device, local: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, each ``(L, D)`` float32; dimension i is paired with i + D / 2."""
        powers = torch.arange(0, head_width, 2, device=device).float() / head_width  # (D / 2,)
        rates, size = self.theta**-powers, 1.0
        if local and self.local_theta is not None:
            rates = self.local_theta**-powers
        elif self.factor > 1:
            rates, size = self._scaled(rates, powers, head_width)
        angles = torch.arange(length, device=device).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)  # (L, D)
        return (angles.cos(), angles.sin()) if size == 1 else (angles.cos() * size, angles.sin() * size)

    def _scaled(self, rates: Tensor, powers: Tensor, head_width: int) -> tuple[Tensor, float]:
        """Return the scaled ``(D / 2,)`` rates, and the factor of cosines and sines."""
        if self.scaling == "linear":
            return rates / self.factor, 1.0
        if self.scaling == "ntk":
            return (self.theta * self.factor ** (head_width / max(head_width - 2, 1))) ** -powers, 1.0
        assert self.trained_length is not None
        # pairs whose waves turn 32 times and once within the trained length
        low, high = (
            head_width * math.log(self.trained_length / (2 * math.pi * turns)) / (2 * math.log(self.theta))
            for turns in (32, 1)
        )
        low, high = max(math.floor(low), 0), min(math.ceil(high), head_width - 1)
        ramp = ((torch.arange(len(rates), device=rates.device) - low) / max(high - low, 0.001)).clamp(0, 1)
        return rates * (1 - ramp) + rates / self.factor * ramp, 0.1 * math.log(self.factor) + 1

    def rotations(
        self, length: int, head_width: int, device: torch.device
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
        """Return the rotation of most layers and that of local ones, None if it is the same."""
        local = None if self.local_theta is None else self.rotation(length, head_width, device, local=True)
        return self.rotation(length, head_width, device), local


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """Rotate ``(B, G + L, H, D)`` by ``(L, D)`` or ``(B, L, D)`` cosines and sines; the first G stay unchanged."""
    if rotation is None:
        return x
    cosines, sines = (part.to(x.dtype)[..., None, :] for part in rotation)  # (L, 1, D) or (B, L, 1, D)
    extra = x.shape[1] - cosines.shape[-3]
    if extra:
        return torch.cat([x[:, :extra], rotate(x[:, extra:], rotation)], 1)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines
