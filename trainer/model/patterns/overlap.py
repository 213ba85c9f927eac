"""Overlapping blocks: a block sees itself and half of each neighbour (BART-LS, arXiv:2209.10052, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context


@dataclass(frozen=True)
class Overlap:
    """Position i of block ``b = i // size`` sees ``[b size - size / 2, (b + 1) size + size / 2)``."""

    size: int = 1024
    pattern: Literal["overlap"] = "overlap"
    extra_tokens: ClassVar[int] = 0

    def at(self, layer: int) -> Overlap:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        raise FarspanError("attention pattern overlap is being written")

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return ()

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        raise FarspanError("attention pattern overlap is being written")

    def flops(self, length: int, width: int) -> int:
        raise FarspanError("attention pattern overlap is being written")

    def kept(self, length: int, width: int, heads: int) -> int:
        raise FarspanError("attention pattern overlap is being written")
