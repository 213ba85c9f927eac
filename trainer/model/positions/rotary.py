"""Rotary positions: queries and keys are rotated by their position (RoFormer, arXiv:2104.09864, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError


@dataclass(frozen=True)
class Rotary:
    """Rotary positions, without parameters or a maximum length; only differences of positions matter.

    Attributes:
        theta: base of the wavelengths, ``2 pi theta^(2i / D)`` positions for pair i.
    """

    theta: float = 10_000.0
    scheme: Literal["rotary"] = "rotary"

    def __post_init__(self) -> None:
        if self.theta <= 1:
            raise FarspanError(f"rotary positions: theta is {self.theta}; it must be above 1 (usual: 10,000)")

    @property
    def limit(self) -> None:
        """Maximum sequence length: unlimited."""
        return None

    def rotation(self, length: int, head_width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return cosines and sines, each ``(L, D)`` float32; dimension i is paired with i + D / 2."""
        rates = self.theta ** -(torch.arange(0, head_width, 2, device=device).float() / head_width)  # (D / 2,)
        angles = torch.arange(length, device=device).float()[:, None] * rates
        angles = torch.cat([angles, angles], -1)  # (L, D)
        return angles.cos(), angles.sin()


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """Rotate ``(B, G + L, H, D)`` by ``(L, D)`` cosines and sines; the first G positions are left unchanged."""
    if rotation is None:
        return x
    cosines, sines = (part.to(x.dtype)[:, None, :] for part in rotation)  # (L, 1, D)
    extra = x.shape[1] - len(cosines)
    if extra:
        return torch.cat([x[:, :extra], rotate(x[:, extra:], rotation)], 1)
    first, second = x.chunk(2, -1)
    return x * cosines + torch.cat([-second, first], -1) * sines
