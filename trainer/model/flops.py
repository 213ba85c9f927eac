"""Floating-point operations by formula, so that a utilisation is never a guess."""

from __future__ import annotations

from trainer.model.config import ModelConfig
from trainer.model.full import Causal


def forward_flops(config: ModelConfig, vocab_size: int, source: int, target: int) -> int:
    """Matrix-multiply operations (2 a multiply-add) of one sequence's forward pass; a training step costs 3 times that.

    Args:
        config: the model.
        vocab_size: rows of the output layer.
        source: encoder positions.
        target: decoder positions; for a masked language model, positions that are asked.
    """
    d, inner, encoder = config.width, config.feed_forward, config.encoder
    total = encoder.layers * ((8 * d * d + 4 * d * inner) * source + encoder.attention.flops(source, d))
    if encoder.pooling:
        total += encoder.pooling.layers * encoder.pooling.flops(source, d)
    if config.decoder is None:
        return total + 2 * d * (d + vocab_size) * target
    layer = (12 * d * d + 4 * d * inner) * target  # self-attention's four projections, cross-attention's q and out
    layer += 4 * d * d * source + 4 * source * target * d  # cross-attention's k, v; its scores and mixing
    layer += Causal().flops(target, d)
    return total + config.decoder.layers * layer + 2 * d * vocab_size * target
