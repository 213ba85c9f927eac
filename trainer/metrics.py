"""The metrics of an update: counts, floating-point operations by formula, and numbers derived from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any, Literal

from corpora.errors import FarspanError
from trainer.data.batch import Batch
from trainer.model.config import ModelConfig


def batch_flops(
    config: ModelConfig, vocab_size: int, rows: int, source: int, targets: int, global_positions: int = 0
) -> int:
    """Sum ``forward_flops`` over ``rows`` sequences of equal length."""
    if config.decoder is None:
        encoder = rows * forward_flops(config, vocab_size, source, 0, global_positions)
        return encoder + targets * _count_masked_head(config, vocab_size)
    return rows * forward_flops(config, vocab_size, source, targets // rows, global_positions)


def forward_flops(config: ModelConfig, vocab_size: int, source: int, target: int, global_positions: int = 0) -> int:
    """Count the matrix-multiply operations of one sequence's forward pass; a training step costs 3 times as many.

    A multiply-add counts as 2.
    """
    d, encoder, decoder = config.width, config.encoder, config.decoder
    inner = config.heads.count * config.head_width  # H * D
    projection = 2 * d * inner  # q or out of one position
    keys_and_values = 2 * projection * config.heads.groups // config.heads.count
    attention = 2 * projection + keys_and_values
    feed_forward = 2 * d * config.feed_forward.width * (3 if config.feed_forward.gated else 2)
    extra = encoder.attention.extra_tokens
    total = encoder.layers * (attention + feed_forward) * (extra + source)
    total += sum(encoder.attention.at(layer).flops(source, inner) for layer in range(encoder.layers))
    total += encoder.layers * encoder.attention.extra_flops(source, d, inner, global_positions)
    if encoder.pooling:
        total += encoder.pooling.layers * encoder.pooling.flops(source, d, inner)
    if decoder is None:
        return total + target * _count_masked_head(config, vocab_size)
    total += decoder.layers * (attention + feed_forward) * target
    total += sum(decoder.pattern(layer).flops(target, inner) for layer in range(decoder.layers))
    crossing = sum(decoder.crosses(layer) for layer in range(decoder.layers))
    # q and out for the target unless self-attention has them, k and v for the keys; scores and weighted sums
    queries = 0 if decoder.cross == "merged" else 2 * projection * target
    for keys in (source, extra) if decoder.global_cross_attention else (source,):
        total += crossing * (queries + keys_and_values * keys + 4 * keys * target * inner)
    return total + 2 * d * vocab_size * target


def _count_masked_head(config: ModelConfig, vocab_size: int) -> int:
    """Operations for one labelled position of a masked language model."""
    return 2 * config.width * (config.width + vocab_size)


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """Logging of a run.

    Attributes:
        log_every: steps between plain progress lines; the metrics file has every step.
        tensorboard: also write event files into the run's directory; needs the extra ``tracking``.
        peak_tflops: peak of one device, to which the utilisation refers: a number, ``measure`` to time a large matrix
            product when the run starts, or ``none``.
    """

    log_every: int = 10
    tensorboard: bool = False
    peak_tflops: float | Literal["measure"] | None = "measure"

    def __post_init__(self) -> None:
        if self.log_every < 1:
            raise FarspanError(f"metrics.log_every is {self.log_every}; it must be at least 1")
        if isinstance(self.peak_tflops, float | int) and not 0 < self.peak_tflops < math.inf:
            raise FarspanError(f"metrics.peak_tflops is {self.peak_tflops}; it must be above 0, 'measure' or 'none'")


@dataclass(frozen=True)
class Counts:
    """Tokens, positions and operations of an update, over all its micro-batches and, once summed, all ranks.

    Attributes:
        source_tokens, target_tokens: source positions without padding, and target positions with a label.
        source_positions, target_positions: the same with padding. A masked language model has no padding in its
            targets, because its head runs only on positions with a label.
        flops: operations of matrix products and attention by formula, 3 times those of a forward pass. Padding counts
            like text. In attention, only pairs inside the mask count, even if a kernel computes more; recomputation by
            activation checkpointing and the loss does not count (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).
    """

    source_tokens: int = 0
    source_positions: int = 0
    target_tokens: int = 0
    target_positions: int = 0
    flops: int = 0

    @classmethod
    def of(cls, batches: Iterable[Batch], model: ModelConfig, vocab_size: int) -> Counts:
        """Count ``batches``, for a model with the attention of their stage."""
        return sum((cls._of_one(batch, model, vocab_size) for batch in batches), cls())

    @classmethod
    def _of_one(cls, batch: Batch, model: ModelConfig, vocab_size: int) -> Counts:
        rows, source = batch.source_ids.shape
        # Rows with fewer global positions than others are padded.
        global_positions = 0 if batch.global_positions is None else int(batch.global_positions.sum(1).max())
        targets = batch.labels.numel() if model.decoder else batch.target_tokens
        return cls(
            source_tokens=batch.source_tokens,
            source_positions=rows * source,
            target_tokens=batch.target_tokens,
            target_positions=targets,
            flops=3 * batch_flops(model, vocab_size, rows, source, targets, global_positions),
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def derive(
    counts: Counts,
    *,
    loss: float | None,
    seconds: float,
    waited: float,
    devices: int = 1,
    peak_tflops: float | None = None,
) -> dict[str, Any]:
    """Derive the metrics of an update from the counts of all ranks and its times.

    ``loss`` is the cross-entropy summed over the target tokens of all ranks, None if the update was skipped;
    ``seconds`` is the duration, of which the model ``waited`` for batches. Returns ``loss`` and ``perplexity`` per
    target token, the counts of tokens and positions and their rates per second, the shares of padding,
    ``model_tflops_per_second`` of one device and its share of the peak, ``mfu``, both including the work on padding;
    ``data_wait_share`` and ``seconds``. Unknown numbers are None.
    """
    mean = None if loss is None else loss / max(counts.target_tokens, 1)
    tokens = {name: value for name, value in vars(counts).items() if name != "flops"}
    tflops = counts.flops / 1e12 / seconds / devices
    return {
        "loss": mean,
        "perplexity": perplexity(mean),
        **tokens,
        **{f"{name}_per_second": value / seconds for name, value in tokens.items()},
        "source_padding_share": 1 - counts.source_tokens / max(counts.source_positions, 1),
        "target_padding_share": 1 - counts.target_tokens / max(counts.target_positions, 1),
        "model_tflops_per_second": tflops,
        # a peak measured while the machine was busy can be below an update
        "mfu": tflops / max(peak_tflops, tflops) if peak_tflops else None,
        "data_wait_share": min(waited / seconds, 1.0),
        "seconds": seconds,
    }


def perplexity(loss: float | None) -> float | None:
    """Return ``exp(loss)``; None without a loss, or if it overflows float64."""
    return math.exp(loss) if loss is not None and loss < 700 else None
