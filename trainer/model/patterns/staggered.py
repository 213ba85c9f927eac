"""Blocks, shifted by half a block in every other layer, and learned global tokens (PEGASUS-X, arXiv:2208.04347, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context


@dataclass(frozen=True)
class Staggered:
    """Odd layers are staggered."""

    size: int = 512
    global_tokens: int = 128
    staggered: bool = True
    shifted: bool = False
    pattern: Literal["staggered"] = "staggered"

    @property
    def extra_tokens(self) -> int:
        return self.global_tokens

    def at(self, layer: int) -> Staggered:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        raise FarspanError("attention pattern staggered is being written")

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return ()

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        raise FarspanError("attention pattern staggered is being written")

    def flops(self, length: int, width: int) -> int:
        raise FarspanError("attention pattern staggered is being written")

    def kept(self, length: int, width: int, heads: int) -> int:
        raise FarspanError("attention pattern staggered is being written")
