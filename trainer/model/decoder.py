"""The decoder: causal self-attention, cross-attention to the encoder's output, feed-forward."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import Tensor, nn

from trainer.model.config import DecoderConfig, ModelConfig
from trainer.model.context import Context, make_context
from trainer.model.layers.attention import Causal, CrossAttention, SelfAttention
from trainer.model.layers.sublayers import Embeddings, FeedForward, Residual, make_last_norm
from trainer.model.patterns.merged import Merged
from trainer.model.positions import Buckets, RelativeBias, Rotary


class EncoderOutput(NamedTuple):
    """Encoder states for the decoder's cross-attention.

    ``segments`` and ``extra_segments`` are the examples of both in packed rows, where the decoder attends to those of
    its own example; else None.
    """

    states: Tensor  # (B, S, d)
    padding_mask: Tensor | None = None  # (B, S) bool, False at padding
    extra: Tensor | None = None  # (B, G, d), the pattern's learned tokens, if the decoder attends to them
    extra_mask: Tensor | None = None  # (B, G) bool, False for tokens of documents that a row does not have
    segments: Tensor | None = None  # (B, S) int
    extra_segments: Tensor | None = None  # (B, G) int

    def keys(self, extra: bool) -> tuple[Tensor, Context]:
        """Return the states and the context of the sequence, or of the learned tokens if ``extra``."""
        if not extra:
            return self.states, Context(self.padding_mask, self.segments)
        assert self.extra is not None
        return self.extra, Context(self.extra_mask, self.extra_segments)


class Crossing(NamedTuple):
    """One cross-attention of a layer; ``extra`` if its keys are the encoder's learned tokens, not the sequence."""

    extra: bool
    attention: CrossAttention
    residual: Residual


class DecoderLayer(nn.Module):
    """One decoder layer; its cross-attentions are None if it does not attend to these states of the encoder.

    ``merged`` is True if self-attention also attends to the encoder's states.
    """

    def __init__(self, config: ModelConfig, decoder: DecoderConfig, index: int) -> None:
        super().__init__()
        width, heads, norm, dropout = config.width, config.heads, config.norm, config.dropout
        pattern, crosses = decoder.pattern(index), decoder.crosses(index)
        self.merged = crosses and decoder.cross == "merged"
        crosses = crosses and not self.merged
        crosses_extra = crosses and decoder.global_cross_attention
        self.attention = SelfAttention(
            width, heads, Merged(pattern) if self.merged else pattern, config.attention_dropout
        )
        self.attention_residual = Residual(width, norm, dropout, first=index == 0)
        self.global_cross_attention = CrossAttention(width, heads, config.attention_dropout) if crosses_extra else None
        self.global_cross_attention_residual = Residual(width, norm, dropout) if crosses_extra else None
        self.cross_attention = CrossAttention(width, heads, config.attention_dropout) if crosses else None
        self.cross_attention_residual = Residual(width, norm, dropout) if crosses else None
        self.feed_forward = FeedForward(width, config.feed_forward, config.activation_dropout)
        self.feed_forward_residual = Residual(width, norm, dropout)

    def forward(self, x: Tensor, encoder_output: EncoderOutput, context: Context) -> Tensor:
        """Map hidden states ``(B, T, d)`` to the same shape."""
        states = encoder_output.states if self.merged else None
        x = self.attention_residual(x, lambda h: self.attention(h, context, states))
        for extra, attention, residual in self.crossings():
            states, keys = encoder_output.keys(extra)
            x = residual(x, partial(attention, states=states, context=context, keys=keys))
        return self.feed_forward_residual(x, self.feed_forward)

    def crossings(self) -> list[Crossing]:
        """List the layer's cross-attentions in their order: to the learned tokens, then to the sequence."""
        extra = self.global_cross_attention, self.global_cross_attention_residual
        sequence = self.cross_attention, self.cross_attention_residual
        return [Crossing(a is self.global_cross_attention, a, r) for a, r in (extra, sequence) if a and r]


class Decoder(nn.Module):
    """Decoder stack: token vectors and the encoder's output to hidden states."""

    def __init__(self, config: ModelConfig, decoder: DecoderConfig) -> None:
        super().__init__()
        self.embedded = Embeddings(config.width, config.embedding, decoder.positions, config.norm, config.dropout)
        self.bias = (
            RelativeBias(decoder.positions, config.heads.count, False, decoder.layers)
            if isinstance(decoder.positions, Buckets)
            else None
        )
        self.rotary = decoder.positions if isinstance(decoder.positions, Rotary) else None
        self.head_width = config.head_width
        self.layers = nn.ModuleList(DecoderLayer(config, decoder, index) for index in range(decoder.layers))
        self.norm = make_last_norm(config.width, config.norm)

    def forward(self, tokens: Tensor, encoder_output: EncoderOutput, segments: Tensor | None = None) -> Tensor:
        """Decode ``tokens``, ``(B, T, d)`` with padding on the right only, to hidden states, ``(B, T, d)``.

        ``segments``, ``(B, T)`` int, are the examples of the positions of packed rows, -1 at padding.
        """
        context = make_context(segments=segments, packed=True)._replace(
            side_mask=encoder_output.padding_mask, side_segments=encoder_output.segments
        )
        x, length, places = self.embedded(tokens, context.places), tokens.shape[1], context.places
        if self.rotary:
            rotation, local = self.rotary.rotations(length, self.head_width, tokens.device)
            if places is not None:  # merged cross-attention depends on the position, not on differences alone
                rotation = rotation[0][places], rotation[1][places]
                local = local and (local[0][places], local[1][places])
            context = context._replace(rotation=rotation, local_rotation=local)
        for index, layer in enumerate(self.layers):
            if self.bias is not None and (index == 0 or self.bias.buckets.per_layer):
                (offsets,) = Causal().offsets(length)
                context = context._replace(biases=(self.bias(offsets.to(tokens.device), index),))
            x = layer(x, encoder_output, context)
        return self.norm(x)
