"""Batches of random tokens that are there already, for benchmarks of what happens to batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trainer.data.config import Batch


class InMemory:
    """The same micro-batches in every step."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = list(batches)

    def step(self, step: int) -> list[Batch]:
        return self.batches


def full_batch(source: Tensor, decoder: Tensor, labels: Tensor, global_positions: Tensor | None = None) -> Batch:
    """``(B, S)``, ``(B, T)`` and ``(B, T)`` int64 without padding, and ``(B, S)`` bool."""
    return Batch(
        samples=np.arange(len(source)),
        sequence_ids=np.zeros((len(source), 16), np.uint8),
        source_ids=source,
        source_padding_mask=None,
        decoder_ids=decoder,
        labels=labels,
        source_tokens=source.numel(),
        target_tokens=labels.numel(),
        global_positions=global_positions,
    )


def random_batches(count: int, rows: int, source: int, target: int, vocab: int) -> list[Batch]:
    """``count`` batches of ``rows`` sequences."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        read = torch.randint(vocab, (rows, source), generator=generator)
        written = torch.randint(vocab, (rows, target + 1), generator=generator)
        found.append(full_batch(read, written[:, :-1], written[:, 1:]))
    return found
