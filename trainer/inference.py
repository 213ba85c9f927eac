"""Forward passes over rows of unequal length: which go together, and on how many threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Rows of similar length, longest first: arrays of row numbers, each of at most ``tokens`` once padded.

    A row longer than ``tokens`` is alone; rows of length 0 are in no batch.

    Args:
        lengths: ``(n,)`` int.
    """
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    start = 0
    while start < len(order):
        size = max(1, tokens // int(lengths[order[start]]))
        yield order[start : start + size]
        start += size


@contextmanager
def pinned_threads(number: int | None) -> Iterator[None]:
    """Run on ``number`` threads, or on as many as torch has for None.

    How many threads share a matrix product decides the order of its additions.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
