"""Linear layers that hold several projections of the same input."""

from __future__ import annotations

from torch import nn


class Projections(nn.Linear):
    """Projections of one input, their weights stacked row-wise and their biases end to end, for one matrix product.

    They share nothing but the product: what an optimiser measures of a whole weight, it measures of each.

    Attributes:
        count: how many there are, all of the same width.
    """

    def __init__(self, in_features: int, out_features: int, count: int, bias: bool = True) -> None:
        """
        Args:
            in_features: width of the input.
            out_features: width of each projection.
            count: how many.
            bias: whether they have biases.
        """
        super().__init__(in_features, count * out_features, bias=bias)
        self.count = count


def projections_in(model: nn.Module) -> dict[nn.Parameter, int]:
    """Parameter -> number of projections stacked in it along dimension 0, for every parameter of ``model``."""
    counts = dict.fromkeys(model.parameters(), 1)
    for module in model.modules():
        if isinstance(module, Projections):
            counts |= dict.fromkeys(module.parameters(recurse=False), module.count)
    return counts
