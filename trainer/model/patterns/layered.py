"""A window in most layers, full attention in every n-th (Gemma 3, arXiv:2503.19786, section 2; ModernBERT)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.layers.attention import Causal
from trainer.model.pattern import Pattern
from trainer.model.patterns.full import Full
from trainer.model.patterns.span import Span


@dataclass(frozen=True)
class Layered(Pattern):
    """The pattern ``span`` in most layers, full attention in one of every ``every``.

    As a pattern by itself, without ``at``, it is that of the full layers.

    Attributes:
        left, right: reach of the windows, as in ``span``.
        every: one layer in this many has full attention.
        full: 0-based number of that layer among them; -1 is the last.
        causal: attend to no later position in any layer, as in a decoder; ``right`` must be 0.
    """

    left: int = 255
    right: int = 256
    every: int = 6
    full: int = -1
    causal: bool = False
    pattern: Literal["layered"] = "layered"

    def __post_init__(self) -> None:
        Span(self.left, self.right)
        if self.every < 1 or not -self.every <= self.full < self.every:
            raise FarspanError(
                f"attention pattern layered: full is {self.full} and every is {self.every}; give a place among at "
                "least 1 layer"
            )
        if self.causal and self.right:
            raise FarspanError(f"attention pattern layered: causal is true, but right is {self.right}; set it to 0")

    def at(self, layer: int) -> Pattern:
        return self._whole if layer % self.every == self.full % self.every else Span(self.left, self.right)

    @property
    def _whole(self) -> Causal | Full:
        return Causal() if self.causal else Full()

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        return self._whole.attend(q, k, v, context, dropout, scale)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return self._whole.mask_mod(query, key, length)

    def flops(self, length: int, width: int) -> int:
        return self._whole.flops(length, width)
