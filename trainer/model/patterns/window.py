"""A sliding window and positions that the task makes global (Longformer, arXiv:2004.05150, section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context


@dataclass(frozen=True)
class Window:
    """Position i sees ``|i - j| <= size / 2``; global positions see, and are seen by, everything."""

    size: int | tuple[int, ...] = 512
    pattern: Literal["window"] = "window"
    extra_tokens: ClassVar[int] = 0

    def at(self, layer: int) -> Window:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        raise FarspanError("attention pattern window is being written")

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return ()

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        raise FarspanError("attention pattern window is being written")

    def flops(self, length: int, width: int) -> int:
        raise FarspanError("attention pattern window is being written")

    def kept(self, length: int, width: int, heads: int) -> int:
        raise FarspanError("attention pattern window is being written")
