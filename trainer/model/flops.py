"""Floating-point operations by formula, so that a utilisation is never a guess."""

from __future__ import annotations

from trainer.model.config import ModelConfig
from trainer.model.patterns.full import Causal
from trainer.model.patterns.tglobal import TGlobal
from trainer.model.patterns.window import Window


def batch_flops(
    config: ModelConfig, vocab_size: int, rows: int, source: int, asked: int, global_positions: int = 0
) -> int:
    """``forward_flops`` of ``rows`` sequences of one width.

    Args:
        asked: target positions of all rows, padding included; for a masked language model these may differ by row.
        global_positions: of the row that has most.
    """
    if config.decoder is None:
        encoder = rows * forward_flops(config, vocab_size, source, 0, global_positions)
        return encoder + asked * _masked_head(config, vocab_size)
    return rows * forward_flops(config, vocab_size, source, asked // rows, global_positions)


def forward_flops(config: ModelConfig, vocab_size: int, source: int, target: int, global_positions: int = 0) -> int:
    """Matrix-multiply operations (2 a multiply-add) of one sequence's forward pass; a training step costs 3 times that.

    Args:
        config: the model.
        vocab_size: rows of the output layer.
        source: encoder positions.
        target: decoder positions; for a masked language model, positions that are asked.
        global_positions: how many source positions the task makes global; only the pattern ``window`` knows them.
    """
    d, encoder, decoder = config.width, config.encoder, config.decoder
    inner = config.heads.count * config.head_width  # H * D
    projection = 2 * d * inner  # of one position: q, k, v or out
    feed_forward = 2 * d * config.feed_forward.width * (3 if config.feed_forward.gated else 2)
    extra = encoder.attention.extra_tokens
    total = encoder.layers * (4 * projection + feed_forward) * (extra + source)
    total += sum(encoder.attention.at(layer).flops(source, inner) for layer in range(encoder.layers))
    total += encoder.layers * _beside(config, source, global_positions)
    if encoder.pooling:
        total += encoder.pooling.layers * encoder.pooling.flops(source, d, inner)
    if decoder is None:
        return total + target * _masked_head(config, vocab_size)
    total += decoder.layers * ((4 * projection + feed_forward) * target + Causal().flops(target, inner))
    memory = source + (extra if decoder.cross_attends_globals else 0)
    crossing = sum(decoder.crosses(layer) for layer in range(decoder.layers))
    # q and out of the target, k and v of the memory; scores and mixing
    total += crossing * (2 * projection * (target + memory) + 4 * memory * target * inner)
    return total + 2 * d * vocab_size * target


def _beside(config: ModelConfig, source: int, global_positions: int) -> int:
    """What one encoder layer projects, and attends to, besides ``source`` positions and the pattern's own tokens."""
    pattern, inner = config.encoder.attention, config.heads.count * config.head_width
    projection = 2 * config.width * inner
    if isinstance(pattern, TGlobal):
        return 2 * projection * (source // pattern.block)  # keys and values of the summaries
    if isinstance(pattern, Window) and global_positions:
        # their queries, and everybody's keys and values for them; they see, and are seen by, all positions
        return projection * (global_positions + 2 * source) + 8 * global_positions * source * inner
    return 0


def _masked_head(config: ModelConfig, vocab_size: int) -> int:
    """Of one asked position of a masked language model."""
    return 2 * config.width * (config.width + vocab_size)
