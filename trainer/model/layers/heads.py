"""The attention heads of a model, and the linear layers that hold their projections."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from corpora.errors import FarspanError


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Attention heads, the same in every attention layer of the model.

    Attributes:
        count: number of heads, H.
        width: width of a head, D; None is the model's width / count.
        kv_count: number of heads of keys and values, G, each of which serves H / G heads of queries (grouped queries,
            arXiv:2305.13245); None is H.
        bias: True if the four projections have biases.
        scaled: True if scores are divided by sqrt(D), as in all models but T5.
        scale_width: number whose square root divides scores in place of D's (Gemma's ``query_pre_attn_scalar``).
        norm_eps: number added to the variance in RMSNorms of every head's queries and keys, before rotation (Gemma 3);
            None without these norms.
    """

    count: int
    width: int | None = None
    kv_count: int | None = None
    bias: bool = True
    scaled: bool = True
    scale_width: float | None = None
    norm_eps: float | None = None

    def __post_init__(self) -> None:
        for name in ("count", "width", "kv_count"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FarspanError(f"model.heads.{name} is {value}; it must be at least 1")
        if self.kv_count is not None and self.count % self.kv_count:
            raise FarspanError(
                f"model.heads.kv_count is {self.kv_count} and does not divide model.heads.count {self.count}; choose a "
                "number that does"
            )
        for name in ("scale_width", "norm_eps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise FarspanError(f"model.heads.{name} is {value}; it must be above 0 and finite")
        if self.scale_width is not None and not self.scaled:
            raise FarspanError("model.heads.scale_width is set, but model.heads.scaled is false; set one of them")

    def inner(self, width: int) -> int:
        """Width of all heads together, H * D, in a model of this ``width``."""
        return self.count * (self.width or width // self.count)

    @property
    def groups(self) -> int:
        """Number of heads of keys and values, G."""
        return self.kv_count or self.count

    @property
    def scale(self) -> float | None:
        """Factor of the scores; None is 1 / sqrt(D)."""
        if self.scale_width is not None:
            return float(self.scale_width**-0.5)
        return None if self.scaled else 1.0


class HeadNorms(nn.Module):
    """RMSNorms of the queries and keys of every head; the identity without ``norm_eps``."""

    def __init__(self, width: int, heads: HeadsConfig) -> None:
        super().__init__()
        self.q: nn.Module = nn.Identity()
        self.k: nn.Module = nn.Identity()
        if heads.norm_eps is not None:
            size = heads.inner(width) // heads.count
            self.q, self.k = nn.RMSNorm(size, heads.norm_eps), nn.RMSNorm(size, heads.norm_eps)


class Projections(nn.Linear):
    """``count`` projections of one input and equal widths, with weights stacked row-wise, for one matrix product.

    Optimisers with statistics of whole weights, such as Adafactor, treat each projection separately.
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
