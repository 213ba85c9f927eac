"""Batches of random tokens that are there already, for benchmarks of what happens to batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.data.batch import Batch


class InMemory:
    """The same micro-batches in every step."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = list(batches)

    def step(self, step: int) -> list[Batch]:
        return self.batches


def random_batches(count: int, rows: int, source: int, target: int, vocab: int) -> list[Batch]:
    """``count`` batches of ``rows`` sequences."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        read = torch.randint(vocab, (rows, source), generator=generator)
        written = torch.randint(vocab, (rows, target + 1), generator=generator)
        found.append(Batch.full(read, written[:, 1:], written[:, :-1], global_first=False))
    return found
