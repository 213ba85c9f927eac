"""A sliding window and one transient global token a block (LongT5 TGlobal, arXiv:2112.07916, section 3.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context


@dataclass(frozen=True)
class TGlobal:
    """Position i sees ``|i - j| <= radius`` and the sum of every block of ``block`` tokens."""

    radius: int = 127
    block: int = 16
    pattern: Literal["tglobal"] = "tglobal"
    extra_tokens: ClassVar[int] = 0

    def at(self, layer: int) -> TGlobal:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        raise FarspanError("attention pattern tglobal is being written")

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return ()

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        raise FarspanError("attention pattern tglobal is being written")

    def flops(self, length: int, width: int) -> int:
        raise FarspanError("attention pattern tglobal is being written")

    def kept(self, length: int, width: int, heads: int) -> int:
        raise FarspanError("attention pattern tglobal is being written")
