"""The encoder: self-attention within a pattern, pooled attention on top of it where asked, feed-forward."""

from __future__ import annotations

from torch import Tensor, nn

from trainer.model.attention import SelfAttention
from trainer.model.config import ModelConfig
from trainer.model.layers import Embedded, FeedForward, Residual
from trainer.model.pooled import PooledAttention
from trainer.model.positions import LearnedPositions


class EncoderLayer(nn.Module):
    """One layer; ``pooling`` is None in layers without pooled attention."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        encoder, width, heads, dropout = config.encoder, config.width, config.heads, config.attention_dropout
        self.attention = SelfAttention(width, heads, encoder.attention, dropout)
        self.pooling = (
            PooledAttention(width, heads, encoder.pooling, dropout)
            if encoder.pooling and encoder.pooled(index)
            else None
        )
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        """``(B, L, d)``, ``(B, L)`` bool -> ``(B, L, d)``."""
        x = self.attention_residual(x, lambda h: self._attend(h, real))
        return self.feed_forward_residual(x, self.feed_forward)

    def _attend(self, x: Tensor, real: Tensor | None) -> Tensor:
        y = self.attention(x, real)
        return y if self.pooling is None else y + self.pooling(y, real)


class Encoder(nn.Module):
    """Token vectors -> hidden states."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedded = Embedded(config, LearnedPositions(config.encoder.positions, config.width))
        self.layers = nn.ModuleList(EncoderLayer(config, index) for index in range(config.encoder.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        """Encode.

        Args:
            tokens: ``(B, S, d)`` token vectors; any S from 1 to the position table's rows.
            real: ``(B, S)`` bool, False at padding; None where there is none.

        Returns:
            ``(B, S, d)``; at padding positions finite and meaningless.
        """
        x = self.embedded(tokens)
        for layer in self.layers:
            x = layer(x, real)
        return self.norm(x)
