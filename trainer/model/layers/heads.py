"""The attention heads of a model, and the linear layers that hold their projections."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from corpora.errors import FarspanError


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Attention heads, the same in every attention layer of the model.

    Attributes:
        count: number of heads, H.
        width: width of a head, D; None is the model's width / count.
        bias: True if the four projections have biases.
        scaled: True if scores are divided by sqrt(D), as in all models but T5.
    """

    count: int
    width: int | None = None
    bias: bool = True
    scaled: bool = True

    def __post_init__(self) -> None:
        for name in ("count", "width"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"model.heads.{name} is {value}; it must be at least 1")

    def inner(self, width: int) -> int:
        """Width of all heads together, H * D, in a model of this ``width``."""
        return self.count * (self.width or width // self.count)

    @property
    def scale(self) -> float | None:
        """Factor of the scores; None is 1 / sqrt(D)."""
        return None if self.scaled else 1.0


class Projections(nn.Linear):
    """Projections of one input, with weights stacked row-wise and biases concatenated, for one matrix product.

    Optimisers with statistics of whole weights, such as Adafactor, treat each projection separately.

    Attributes:
        count: number of projections, all of the same width.
    """

    def __init__(self, in_features: int, out_features: int, count: int, bias: bool = True) -> None:
        super().__init__(in_features, count * out_features, bias=bias)
        self.count = count


def projections_in(model: nn.Module) -> dict[nn.Parameter, int]:
    """Map every parameter of ``model`` to the number of projections stacked in it along dimension 0."""
    counts = dict.fromkeys(model.parameters(), 1)
    for module in model.modules():
        if isinstance(module, Projections):
            counts |= dict.fromkeys(module.parameters(recurse=False), module.count)
    return counts
