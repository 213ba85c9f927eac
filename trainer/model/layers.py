"""What encoder and decoder layers share: the residual sum with its norm, and the feed-forward sublayer."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.model.config import ModelConfig


class Residual(nn.Module):
    """``norm(x + drop(f(x)))`` (post) or ``x + drop(f(norm(x)))`` (pre)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Module):
    """``(B, L, d) -> (B, L, d)`` through one wider layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.width, config.feed_forward)
        self.down = nn.Linear(config.feed_forward, config.width)
        self.activation: Callable[[Tensor], Tensor] = F.gelu if config.activation == "gelu" else F.relu
        self.dropout = nn.Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))


class Embedded(nn.Module):
    """Token vectors + positions, normalised (post-norm models, as BART's ``layernorm_embedding``), dropped out."""

    def __init__(self, config: ModelConfig, positions: nn.Module) -> None:
        super().__init__()
        self.positions = positions
        self.norm = nn.LayerNorm(config.width) if config.norm == "post" else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """``(B, L, d) -> (B, L, d)``."""
        return self.dropout(self.norm(tokens + self.positions(tokens.shape[1])))
