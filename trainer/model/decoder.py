"""The decoder: causal self-attention, full cross-attention to the encoder's output, feed-forward."""

from __future__ import annotations

from torch import Tensor, nn

from trainer.model.attention import CrossAttention, SelfAttention
from trainer.model.config import DecoderConfig, ModelConfig
from trainer.model.full import Causal
from trainer.model.layers import Embedded, FeedForward, Residual
from trainer.model.positions import LearnedPositions


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.heads, Causal(), config.attention_dropout)
        self.attention_residual = Residual(config)
        self.cross_attention = CrossAttention(config.width, config.heads, config.attention_dropout)
        self.cross_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, memory: Tensor, memory_real: Tensor | None) -> Tensor:
        """``(B, T, d)``, memory ``(B, S, d)`` and its ``(B, S)`` bool -> ``(B, T, d)``."""
        x = self.attention_residual(x, self.attention)
        x = self.cross_attention_residual(x, lambda h: self.cross_attention(h, memory, memory_real))
        return self.feed_forward_residual(x, self.feed_forward)


class Decoder(nn.Module):
    """Token vectors and the encoder's output -> hidden states."""

    def __init__(self, config: ModelConfig, decoder: DecoderConfig) -> None:
        super().__init__()
        self.embedded = Embedded(config, LearnedPositions(decoder.positions, config.width))
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(decoder.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, tokens: Tensor, memory: Tensor, memory_real: Tensor | None = None) -> Tensor:
        """Decode.

        Args:
            tokens: ``(B, T, d)`` vectors of the decoder's input, padded on the right if at all.
            memory: ``(B, S, d)``, the encoder's output.
            memory_real: ``(B, S)`` bool, False at padding; None where there is none.

        Returns:
            ``(B, T, d)``.
        """
        x = self.embedded(tokens)
        for layer in self.layers:
            x = layer(x, memory, memory_real)
        return self.norm(x)
