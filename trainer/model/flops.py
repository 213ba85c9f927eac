"""Floating-point operations by formula, so that a utilisation is never a guess."""

from __future__ import annotations

from trainer.model.config import ModelConfig
from trainer.model.patterns.full import Causal


def forward_flops(config: ModelConfig, vocab_size: int, source: int, target: int) -> int:
    """Matrix-multiply operations (2 a multiply-add) of one sequence's forward pass; a training step costs 3 times that.

    Args:
        config: the model.
        vocab_size: rows of the output layer.
        source: encoder positions.
        target: decoder positions; for a masked language model, positions that are asked.
    """
    d, encoder, decoder = config.width, config.encoder, config.decoder
    inner = config.heads.count * config.head_width  # H * D
    projection = 2 * d * inner  # of one position: q, k, v or out
    feed_forward = 2 * d * config.feed_forward.width * (3 if config.feed_forward.gated else 2)
    extra = encoder.attention.extra_tokens
    total = encoder.layers * (4 * projection + feed_forward) * (extra + source)
    total += sum(encoder.attention.at(layer).flops(source, inner) for layer in range(encoder.layers))
    if encoder.pooling:
        total += encoder.pooling.layers * encoder.pooling.flops(source, d, inner)
    if decoder is None:
        return total + 2 * d * (d + vocab_size) * target
    total += decoder.layers * ((4 * projection + feed_forward) * target + Causal().flops(target, inner))
    memory = source + (extra if decoder.cross_attends_globals else 0)
    crossing = sum(decoder.crosses(layer) for layer in range(decoder.layers))
    # q and out of the target, k and v of the memory; scores and mixing
    total += crossing * (2 * projection * (target + memory) + 4 * memory * target * inner)
    return total + 2 * d * vocab_size * target
