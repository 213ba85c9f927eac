"""The encoder: self-attention within a pattern, pooled attention on top of it where asked, feed-forward."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer.model.attention import Pattern, SelfAttention
from trainer.model.config import ModelConfig
from trainer.model.context import Context
from trainer.model.layers import Embedded, FeedForward, Residual, SplitNorm, make_last_norm, make_norm
from trainer.model.patterns.tglobal import TGlobal, TGlobalAttention
from trainer.model.patterns.window import Window, WindowAttention
from trainer.model.pooled import PooledAttention
from trainer.model.relative import Buckets, RelativeBias
from trainer.model.rotary import Rotary


def make_self_attention(config: ModelConfig, pattern: Pattern) -> nn.Module:
    """The self-attention layer of a pattern, with the parameters that the pattern needs."""
    if isinstance(pattern, TGlobal):
        return TGlobalAttention(config.width, config.heads, pattern, config.attention_dropout, make_norm(config))
    if isinstance(pattern, Window):
        return WindowAttention(config.width, config.heads, pattern, config.attention_dropout)
    return SelfAttention(config.width, config.heads, pattern, config.attention_dropout)


class EncoderLayer(nn.Module):
    """One layer; ``pooling`` is None in layers without pooled attention."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        encoder = config.encoder
        pattern = encoder.attention.at(index)
        self.attention = make_self_attention(config, pattern)
        self.pooling = (
            PooledAttention(config.width, config.heads, encoder.pooling, config.attention_dropout)
            if encoder.pooling and encoder.pooled(index)
            else None
        )
        self.split = pattern.extra_tokens > 0
        self.attention_residual = Residual(config, SplitNorm(config) if self.split else None)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(self, x: Tensor, context: Context, extra: int = 0) -> Tensor:
        """``(B, G + L, d)``, what is known of the L, and G -> ``(B, G + L, d)``."""
        x = self.attention_residual(x, lambda h: self._attend(h, context), *([extra] if self.split else []))
        return self.feed_forward_residual(x, self.feed_forward)

    def _attend(self, x: Tensor, context: Context) -> Tensor:
        y = self.attention(x, context)
        return y if self.pooling is None else y + self.pooling(y, context)


class Encoded(NamedTuple):
    """What an encoder gives.

    Attributes:
        states: ``(B, S, d)``; at padding positions finite and meaningless.
        extra: ``(B, G, d)``, states of the pattern's own tokens; G may be 0.
    """

    states: Tensor
    extra: Tensor


class Encoder(nn.Module):
    """Token vectors -> hidden states."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        encoder = config.encoder
        self.pattern: Pattern = encoder.attention
        self.embedded = Embedded(config, encoder.positions)
        if self.pattern.extra_tokens:
            self.extra = nn.Parameter(torch.empty(self.pattern.extra_tokens, config.width))
        self.biases = nn.ModuleList()
        if isinstance(encoder.positions, Buckets):
            for _ in self.pattern.offsets(1):
                self.biases.append(RelativeBias(encoder.positions, config.heads.count, both_ways=True))
        self.rotary = encoder.positions if isinstance(encoder.positions, Rotary) else None
        self.head_width = config.head_width
        self.layers = nn.ModuleList(EncoderLayer(config, index) for index in range(encoder.layers))
        self.norm = make_last_norm(config)

    def forward(self, tokens: Tensor, context: Context) -> Encoded:
        """Encode.

        Args:
            tokens: ``(B, S, d)`` token vectors; any S >= 1 that the positions reach.
            context: of the S positions, as ``make_context`` makes it.
        """
        x, length, extra = self.embedded(tokens), tokens.shape[1], 0
        if self.pattern.extra_tokens:
            extra = context.documents * self.pattern.extra_tokens
            x = torch.cat([self.extra.repeat(context.documents, 1).expand(len(x), -1, -1).to(x.dtype), x], 1)
        context = self._with_positions(context, length, tokens.device)
        for layer in self.layers:
            x = layer(x, context, extra)
        x = self.norm(x)
        return Encoded(x[:, extra:], x[:, :extra])

    def _with_positions(self, context: Context, length: int, device: torch.device) -> Context:
        if self.rotary:
            return context._replace(rotation=self.rotary.rotation(length, self.head_width, device))
        if self.biases:
            offsets = self.pattern.offsets(length)
            biases = (bias(part.to(device)) for bias, part in zip(self.biases, offsets, strict=True))
            return context._replace(biases=tuple(biases))
        return context
