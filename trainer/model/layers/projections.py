"""Linear layers that hold several projections of the same input."""

from __future__ import annotations

from torch import nn


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
