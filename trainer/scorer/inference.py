"""Forward passes over rows of unequal length: which go together, on which device and how many threads."""

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
