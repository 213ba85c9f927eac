"""What encoder and decoder layers share: norms, the residual sum, the feed-forward sublayer, embedded tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.model.config import ModelConfig
from trainer.model.positions import Learned, LearnedPositions, Sinusoidal, SinusoidalPositions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


def make_norm(config: ModelConfig) -> nn.Module:
    """LayerNorm with weight and bias, or RMSNorm with a weight."""
    kind = nn.LayerNorm if config.norm.kind == "layer" else nn.RMSNorm
    return kind(config.width, eps=config.norm.eps)


def make_last_norm(config: ModelConfig) -> nn.Module:
    """At the end of a stack of pre-norm layers, whose sum nothing has normalised."""
    return make_norm(config) if config.norm.placement == "pre" else nn.Identity()


class SplitNorm(nn.Module):
    """One norm for the positions of the sequence, another for the ``G`` learned tokens before it (PEGASUS-X)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens, self.extra = make_norm(config), make_norm(config)

    def forward(self, x: Tensor, extra: int) -> Tensor:
        """``(B, G + L, d)``, G -> ``(B, G + L, d)``."""
        return torch.cat([self.extra(x[:, :extra]), self.tokens(x[:, extra:])], 1)


class Residual(nn.Module):
    """``norm(x + drop(f(x)))`` (post) or ``x + drop(f(norm(x)))`` (pre)."""

    def __init__(self, config: ModelConfig, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.norm = norm or make_norm(config)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm.placement == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], *norm_arguments: int) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x, *norm_arguments)))
        return self.norm(x + self.dropout(sublayer(x)), *norm_arguments)


class FeedForward(nn.Module):
    """``(B, L, d) -> (B, L, d)`` through one wider layer; gated: ``f(up x) * gate x`` (GLU, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        inner, bias = config.feed_forward.width, config.feed_forward.bias
        self.up = nn.Linear(config.width, inner, bias=bias)
        self.gate = nn.Linear(config.width, inner, bias=bias) if config.feed_forward.gated else None
        self.down = nn.Linear(inner, config.width, bias=bias)
        self.activation = ACTIVATIONS[config.feed_forward.activation]
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x))
        return self.down(self.dropout(inner if self.gate is None else inner * self.gate(x)))


class Embedded(nn.Module):
    """Token vectors, scaled where asked, + absolute positions where there are any, normalised, dropped out."""

    def __init__(self, config: ModelConfig, positions: object) -> None:
        super().__init__()
        self.scale = config.width**0.5 if config.embedding.scaled else 1.0
        self.positions: nn.Module | None = None
        if isinstance(positions, Learned):
            self.positions = LearnedPositions(positions.count, config.width)
        elif isinstance(positions, Sinusoidal):
            self.positions = SinusoidalPositions(positions)
        self.norm = make_norm(config) if config.embedding.norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, L, d) -> (B, L, d)``."""
        x = tokens * self.scale if self.scale != 1.0 else tokens
        if self.positions is not None:
            x = x + self.positions(tokens)
        return self.dropout(self.norm(x))
