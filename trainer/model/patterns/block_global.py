"""Blocks whose first tokens are global (BART-LS, arXiv:2209.10052, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context


@dataclass(frozen=True)
class BlockGlobal:
    """The first ``global_tokens`` positions of every block see, and are seen by, everything."""

    size: int = 1024
    global_tokens: int = 64
    pattern: Literal["block_global"] = "block_global"
    extra_tokens: ClassVar[int] = 0

    def at(self, layer: int) -> BlockGlobal:
        return self

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        raise FarspanError("attention pattern block_global is being written")

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        return ()

    def sees(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        raise FarspanError("attention pattern block_global is being written")

    def flops(self, length: int, width: int) -> int:
        raise FarspanError("attention pattern block_global is being written")

    def kept(self, length: int, width: int, heads: int) -> int:
        raise FarspanError("attention pattern block_global is being written")
