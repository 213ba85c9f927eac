"""The encoder: self-attention with a pattern, optional pooled attention after it, feed-forward layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.model.config import ModelConfig
from trainer.model.context import Context
from trainer.model.layers.attention import make_attention
from trainer.model.layers.pooled import PooledAttention
from trainer.model.layers.sublayers import Embeddings, FeedForward, Residual, make_last_norm
from trainer.model.pattern import Pattern
from trainer.model.positions import Buckets, RelativeBias, Rotary


class EncoderLayer(nn.Module):
    """One encoder layer; ``pooling`` is None in layers without pooled attention."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        encoder, width = config.encoder, config.width
        pattern = encoder.attention.at(index)
        self.attention = make_attention(pattern, width, config.heads, config.norm, config.attention_dropout)
        self.pooling = (
            PooledAttention(width, config.heads, encoder.pooling, config.attention_dropout)
            if encoder.pooling and encoder.has_pooling(index)
            else None
        )
        self.split = pattern.extra_tokens > 0
        self.attention_residual = Residual(width, config.norm, config.dropout, self.split, index == 0)
        self.feed_forward = FeedForward(width, config.feed_forward, config.activation_dropout)
        self.feed_forward_residual = Residual(width, config.norm, config.dropout)

    def forward(self, x: Tensor, context: Context, extra: int = 0) -> Tensor:
        """Map ``(B, G + L, d)`` to the same shape; ``context`` describes the L positions, ``extra`` is G."""
        x = self.attention_residual(x, lambda h: self._attend(h, context), *([extra] if self.split else []))
        return self.feed_forward_residual(x, self.feed_forward)

    def _attend(self, x: Tensor, context: Context) -> Tensor:
        y = self.attention(x, context)
        return y if self.pooling is None else y + self.pooling(y, context)


class Encoder(nn.Module):
    """Encoder stack: token vectors to hidden states."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        encoder = config.encoder
        self.pattern: Pattern = encoder.attention
        self.embedded = Embeddings(config.width, config.embedding, encoder.positions, config.norm, config.dropout)
        if self.pattern.extra_tokens:
            self.extra = nn.Parameter(torch.empty(self.pattern.extra_tokens, config.width))
        self.biases = nn.ModuleList()
        if isinstance(encoder.positions, Buckets):
            for _ in self.pattern.offsets(1):
                self.biases.append(RelativeBias(encoder.positions, config.heads.count, True, encoder.layers))
        self.per_layer = isinstance(encoder.positions, Buckets) and encoder.positions.per_layer
        self.rotary = encoder.positions if isinstance(encoder.positions, Rotary) else None
        self.head_width = config.head_width
        self.layers = nn.ModuleList(EncoderLayer(config, index) for index in range(encoder.layers))
        self.norm = make_last_norm(config.width, config.norm)

    def forward(self, tokens: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Encode ``tokens``, ``(B, S, d)``, S >= 1, with the context of the S positions from ``make_context``.

        Returns states of the positions, ``(B, S, d)``, finite but arbitrary at padding, and of the pattern's learned
        tokens, ``(B, G, d)``; G may be 0.
        """
        x, length, extra = self.embedded(tokens, context.places), tokens.shape[1], 0
        if self.pattern.extra_tokens:
            extra = context.most_documents * self.pattern.extra_tokens
            x = torch.cat([self.extra.repeat(context.most_documents, 1).expand(len(x), -1, -1).to(x.dtype), x], 1)
        context = self._with_positions(context, length, tokens.device)
        for index, layer in enumerate(self.layers):
            if index and self.per_layer:
                context = self._with_positions(context, length, tokens.device, index)
            x = layer(x, context, extra)
        x = self.norm(x)
        return x[:, extra:], x[:, :extra]

    def _with_positions(self, context: Context, length: int, device: torch.device, layer: int = 0) -> Context:
        if self.rotary:
            rotation, local = self.rotary.rotations(length, self.head_width, device)
            return context._replace(rotation=rotation, local_rotation=local)
        if self.biases:
            offsets = self.pattern.offsets(length)
            biases = (bias(part.to(device), layer) for bias, part in zip(self.biases, offsets, strict=True))
            return context._replace(biases=tuple(biases))
        return context
