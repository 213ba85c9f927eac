"""Parts common to encoder and decoder layers: norms, residual sums, feed-forward sublayers, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpora.errors import FarspanError
from trainer.model.positions import Learned, LearnedPositions, Sinusoidal, SinusoidalPositions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True, kw_only=True)
class NormConfig:
    """Norms of all layers.

    Attributes:
        placement: ``post``: after each residual sum, as in BART; ``pre``: before each sublayer and once at the end;
            ``both``: like ``pre``, and again on the sublayer's output before the residual sum, as in Gemma.
        kind: ``layer`` (LayerNorm, with weight and bias) or ``rms`` (RMSNorm, with a weight).
        eps: number added to the variance.
        bias: True if LayerNorms have a bias.
        first: True if the first layer has a norm before its self-attention; ModernBERT, whose embeddings are
            normalised, has none there.
    """

    placement: Literal["post", "pre", "both"] = "post"
    kind: Literal["layer", "rms"] = "layer"
    eps: float = 1e-5
    bias: bool = True
    first: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise FarspanError(f"model.norm.eps is {self.eps}; it must be above 0 and finite (BART's is 1e-5)")
        if self.placement == "post" and not self.first:
            raise FarspanError("model.norm.first is false, but model.norm.placement is post; set first to true")


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig:
    """Feed-forward layers.

    Attributes:
        width: width of the inner layer.
        activation: ``gelu_tanh`` is the approximation that T5 1.1 was trained with.
        gated: multiply the activated inner layer by a second, linear one.
        bias: True if the linear layers have biases.
    """

    width: int
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    gated: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        if self.width < 1:
            raise FarspanError(f"model.feed_forward.width is {self.width}; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The embedding layer, from token vectors to the input of the first layer.

    Attributes:
        scaled: multiply token vectors by sqrt(width) before positions are added.
        norm: normalise the sum, as BART and BERT do.
        own_id: id that is read with a vector of its own, not with its row of the token table (the end of an image in
            T5Gemma 2); None without one.
    """

    scaled: bool = False
    norm: bool = True
    own_id: int | None = None


def make_norm(width: int, norm: NormConfig) -> nn.Module:
    """Make a LayerNorm or an RMSNorm."""
    if norm.kind == "rms":
        return nn.RMSNorm(width, eps=norm.eps)
    return nn.LayerNorm(width, eps=norm.eps, bias=norm.bias)


def make_last_norm(width: int, norm: NormConfig) -> nn.Module:
    """Make the final norm of a stack of pre-norm layers, whose residual sum is not normalised yet."""
    return nn.Identity() if norm.placement == "post" else make_norm(width, norm)


class SplitNorm(nn.Module):
    """One norm for the positions of the sequence, another for the ``G`` learned tokens before it (PEGASUS-X)."""

    def __init__(self, width: int, norm: NormConfig) -> None:
        super().__init__()
        self.tokens, self.extra = make_norm(width, norm), make_norm(width, norm)

    def forward(self, x: Tensor, extra: int) -> Tensor:
        """Normalise ``(B, G + L, d)``; ``extra`` is G."""
        return torch.cat([self.extra(x[:, :extra]), self.tokens(x[:, extra:])], 1)


class Unchanged(nn.Identity):
    """The norm of a first sublayer that has none."""

    def forward(self, x: Tensor, *norm_arguments: int) -> Tensor:
        return x


class Residual(nn.Module):
    """Residual sum around a sublayer f.

    ``norm(x + drop(f(x)))`` (post), ``x + drop(f(norm(x)))`` (pre) or ``x + drop(norm_after(f(norm(x))))`` (both);
    ``first`` is True for the first of a stack.
    """

    def __init__(self, width: int, norm: NormConfig, dropout: float, split: bool = False, first: bool = False) -> None:
        super().__init__()
        self.norm = SplitNorm(width, norm) if split else make_norm(width, norm)
        if first and not norm.first:
            self.norm = Unchanged()
        self.norm_after = None
        if norm.placement == "both":
            self.norm_after = SplitNorm(width, norm) if split else make_norm(width, norm)
        self.dropout = nn.Dropout(dropout)
        self.post = norm.placement == "post"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], *norm_arguments: int) -> Tensor:
        if self.post:
            return self.norm(x + self.dropout(sublayer(x)), *norm_arguments)
        y = sublayer(self.norm(x, *norm_arguments))
        return x + self.dropout(y if self.norm_after is None else self.norm_after(y, *norm_arguments))


class FeedForward(nn.Module):
    """Feed-forward sublayer, ``(B, L, d)`` to ``(B, L, d)``; gated: ``f(up x) * gate x`` (GLU, arXiv:2002.05202)."""

    def __init__(self, width: int, config: FeedForwardConfig, dropout: float) -> None:
        super().__init__()
        inner, bias = config.width, config.bias
        self.up = nn.Linear(width, inner, bias=bias)
        self.gate = nn.Linear(width, inner, bias=bias) if config.gated else None
        self.down = nn.Linear(inner, width, bias=bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x))
        return self.down(self.dropout(inner if self.gate is None else inner * self.gate(x)))


class TokenTable(nn.Embedding):
    """The token table, ``(V, d)``, and the input vector of the id that has one of its own, ``(d,)``."""

    own: nn.Parameter | None

    def __init__(self, vocab_size: int, width: int, embedding: EmbeddingConfig) -> None:
        super().__init__(vocab_size, width)
        self.own_id = embedding.own_id
        self.register_parameter("own", None if self.own_id is None else nn.Parameter(torch.zeros(width)))

    def forward(self, ids: Tensor) -> Tensor:
        """Look up ``(B, L)`` ids; returns ``(B, L, d)``."""
        vectors = super().forward(ids)
        if self.own is None or self.own_id is None:
            return vectors
        return torch.where(ids.eq(self.own_id)[..., None], self.own, vectors)


class Embeddings(nn.Module):
    """Embedding layer: scaling (optional), absolute positions (if any), norm (optional), dropout."""

    def __init__(
        self, width: int, embedding: EmbeddingConfig, positions: object, norm: NormConfig, dropout: float
    ) -> None:
        super().__init__()
        self.scale = width**0.5 if embedding.scaled else 1.0
        self.positions: nn.Module | None = None
        if isinstance(positions, Learned):
            self.positions = LearnedPositions(positions.count, width)
        elif isinstance(positions, Sinusoidal):
            self.positions = SinusoidalPositions(positions)
        self.norm = make_norm(width, norm) if embedding.norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """Map token vectors ``(B, L, d)`` to the input of the first layer, ``(B, L, d)``.

        ``places`` are the ``(B, L)`` positions of the tokens; None if each has that of its index.
        """
        x = tokens * self.scale if self.scale != 1.0 else tokens
        if self.positions is not None:
            x = x + self.positions(tokens, places)
        return self.dropout(self.norm(x))
