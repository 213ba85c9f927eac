"""Formulas for the floating-point operations of a model, from which device utilisation is computed."""

from __future__ import annotations

from trainer.model.config import ModelConfig
from trainer.model.layers.causal import Causal


def batch_flops(
    config: ModelConfig, vocab_size: int, rows: int, source: int, targets: int, global_positions: int = 0
) -> int:
    """Sum ``forward_flops`` over ``rows`` sequences of equal length."""
    if config.decoder is None:
        encoder = rows * forward_flops(config, vocab_size, source, 0, global_positions)
        return encoder + targets * _masked_head(config, vocab_size)
    return rows * forward_flops(config, vocab_size, source, targets // rows, global_positions)


def forward_flops(config: ModelConfig, vocab_size: int, source: int, target: int, global_positions: int = 0) -> int:
    """Count the matrix-multiply operations of one sequence's forward pass; a training step costs 3 times as many.

    A multiply-add counts as 2.
    """
    d, encoder, decoder = config.width, config.encoder, config.decoder
    inner = config.heads.count * config.head_width  # H * D
    projection = 2 * d * inner  # q, k, v or out of one position
    feed_forward = 2 * d * config.feed_forward.width * (3 if config.feed_forward.gated else 2)
    extra = encoder.attention.extra_tokens
    total = encoder.layers * (4 * projection + feed_forward) * (extra + source)
    total += sum(encoder.attention.at(layer).flops(source, inner) for layer in range(encoder.layers))
    total += encoder.layers * encoder.attention.extra_flops(source, d, inner, global_positions)
    if encoder.pooling:
        total += encoder.pooling.layers * encoder.pooling.flops(source, d, inner)
    if decoder is None:
        return total + target * _masked_head(config, vocab_size)
    total += decoder.layers * ((4 * projection + feed_forward) * target + Causal().flops(target, inner))
    crossing = sum(decoder.crosses(layer) for layer in range(decoder.layers))
    # q and out for the target, k and v for the keys; scores and weighted sums
    for keys in (source, extra) if decoder.global_cross_attention else (source,):
        total += crossing * (2 * projection * (target + keys) + 4 * keys * target * inner)
    return total + 2 * d * vocab_size * target


def _masked_head(config: ModelConfig, vocab_size: int) -> int:
    """Operations for one labelled position of a masked language model."""
    return 2 * config.width * (config.width + vocab_size)
