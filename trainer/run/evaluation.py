"""Evaluation of the loss on held-out sequences, for each source and for all together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainer.data.batch import Batch, collate
from trainer.data.config import DataConfig, Source
from trainer.metrics import perplexity
from trainer.parallel.distributed import World


@dataclass(frozen=True)
class HeldOut:
    """The first sequences of a source, in stored order.

    Attributes:
        name: name of the source in the metrics.
        source: source of the examples, with the special tokens that the model knows.
        data: widths of batches.
        sequences: number of sequences; all if there are fewer.
        micro_batch_size: sequences per forward pass.
    """

    name: str
    source: Source
    data: DataConfig
    sequences: int
    micro_batch_size: int

    def batches(self, world: World) -> Iterator[Batch]:
        """Yield the batches of one rank.

        All ranks get the same number, because forward passes gather sharded weights together; in the last round, a rank
        without a batch gets one without targets.
        """
        count, size = min(self.sequences, len(self.source)), self.micro_batch_size
        numbers = range(-(-count // size))  # micro-batches, the same for any number of ranks
        for begin in range(0, len(numbers), world.size):
            number = begin + world.rank
            first = min(number, numbers[-1]) * size
            rows = np.arange(first, min(first + size, count))
            batch = collate(self.source.examples(rows), rows, self.data, self.source.special)
            yield batch if number in numbers else batch.without_targets()


def evaluate(
    model: nn.Module, loss: Callable[[Batch], Tensor], held_out: Sequence[HeldOut], world: World
) -> dict[str, Any]:
    """Measure the loss without dropout; the same for any number of ranks, up to the rounding of float64 sums.

    All ranks call this together. ``loss`` calls ``model`` and sums the cross-entropy of a batch, without label
    smoothing, over its target tokens. Returns ``held_out_loss`` and ``held_out_perplexity``, means over the target
    tokens of all sources; with several sources, also ``held_out_loss/NAME`` of each. Values that are not finite are
    None.
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            own = [number for one in held_out for number in _sum_ranks(loss, one.batches(world))]
    finally:
        model.train(training)
    totals = world.sum(*own)
    sums, tokens = totals[::2], totals[1::2]
    mean = _mean(sum(sums), sum(tokens))
    record = {"held_out_loss": mean, "held_out_perplexity": perplexity(mean)}
    if len(held_out) > 1:
        for one, total, count in zip(held_out, sums, tokens, strict=True):
            record[f"held_out_loss/{one.name}"] = _mean(total, count)
    return record


def metric_names(held_out: Sequence[HeldOut]) -> list[str]:
    """Return the keys of ``evaluate``'s result."""
    of_sources = [f"held_out_loss/{one.name}" for one in held_out] if len(held_out) > 1 else []
    return ["held_out_loss", "held_out_perplexity", *of_sources]


def describe(record: Mapping[str, Any], metric: str | None = None) -> str:
    """Format the results of an evaluation as a line of text."""
    parts = [
        f"{name.partition('/')[2] or 'held-out loss'} {'not finite' if value is None else f'{value:.4f}'}"
        for name, value in record.items()
        if name.startswith("held_out_loss")
    ]
    said = [parts[0] + (f" ({', '.join(parts[1:])})" if parts[1:] else "")] if parts else []
    if metric is not None and metric in record:
        said.append(f"{metric} {record[metric]:.4f}")
    return "  ".join(said)


def _sum_ranks(loss: Callable[[Batch], Tensor], batches: Iterator[Batch]) -> tuple[float, int]:
    """Sum loss and target tokens of ``batches``; waits for the device once."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for batch in batches:
        value = loss(batch).double()
        total = total.to(value.device) + value
        tokens += batch.target_tokens
    return total.item(), tokens


def _mean(total: float, tokens: float) -> float | None:
    return total / max(tokens, 1) if math.isfinite(total) else None
