"""Forward passes over rows of unequal length: batching, device, threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

BATCH_TOKENS = {"cpu": 2048, "cuda": 65_536}
"""Padded tokens in a batch, by type of device; on a processor twice as many are no faster."""


def own_device(kind: str) -> torch.device:
    """``cpu``, or of the CUDA devices the one of this process: its rank's under torchrun; others spread over them."""
    if kind != "cuda":
        return torch.device(kind)
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.getpid())) % torch.cuda.device_count())


def batches(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Batch rows of similar length, longest first: arrays of row indices with at most ``tokens`` after padding.

    A row longer than ``tokens`` has a batch of its own; rows of length 0 are in no batch.

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

    The number of threads affects the order of additions in a matrix product.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
