"""Batching, device and threads of forward passes over rows of unequal length."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

BATCH_TOKENS = {"cpu": 2048, "cuda": 65_536}
"""Tokens per batch, padding included, by type of device; on a processor, larger batches are not faster."""

_NUMBERS = ("LOCAL_RANK", "FARSPAN_WORKER", "SLURM_LOCALID")  # variables with this process's number on its machine


def choose_device(kind: str) -> torch.device:
    """Return the CPU, or this process's CUDA device: by its number among the processes of this machine.

    The number is that of torchrun, of a job's worker or of Slurm; a process without one takes a device by its id.
    """
    if kind != "cuda":
        return torch.device(kind)
    number = next((os.environ[name] for name in _NUMBERS if name in os.environ), os.getpid())
    return torch.device("cuda", int(number) % torch.cuda.device_count())


def batch_by_length(lengths: np.ndarray, tokens: int) -> Iterator[np.ndarray]:
    """Batch rows of similar ``lengths``, ``(n,)`` int, longest first; yields arrays of row indices.

    A batch has at most ``tokens`` tokens after padding, or is one longer row; rows of length 0 are in no batch.
    """
    order = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)]
    start = 0
    while start < len(order):
        size = max(1, tokens // int(lengths[order[start]]))
        yield order[start : start + size]
        start += size


@contextmanager
def pin_threads(number: int | None) -> Iterator[None]:
    """Context that runs torch on ``number`` threads; None for the default number.

    The number of threads affects the order of additions in a matrix product.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
