"""Measurements of a device: peak throughput, memory, timing."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from trainer.choices import Precision


def peak_tflops(setting: float | Literal["measure"] | None, device: torch.device, precision: Precision) -> float | None:
    """Return the peak of one device in 10^12 operations per second; None if not configured."""
    if setting == "measure":
        return measure_tflops(device, torch.bfloat16 if precision == "bf16" else torch.float32)
    return setting


def measure_tflops(device: torch.device, dtype: torch.dtype, rounds: int = 5) -> float:
    """Measure 10^12 operations per second in products of large square matrices of ``dtype``, median of ``rounds``.

    The matrices have 8,192 rows on a CUDA device, else 1,024. The measurement takes less than a second.
    """
    size, products = (8192, 10) if device.type == "cuda" else (1024, 1)
    generator = torch.Generator(device).manual_seed(0)  # leaves the run's own random state unchanged
    # Random numbers, because with zeros a GPU draws less power and runs faster than in training.
    left, right = torch.randn(2, size, size, device=device, generator=generator).to(dtype).unbind()
    seconds = []
    for _ in range(1 + rounds):
        _finish(device)
        begin = time.perf_counter()
        for _ in range(products):
            left @ right
        _finish(device)
        seconds.append(time.perf_counter() - begin)
    return (
        products * 2 * size**3 / statistics.median(seconds[1:]) / 1e12
    )  # without the first round, which loads the kernel


def memory_in_use(device: torch.device) -> int:
    """Return bytes in use: peak allocation on a CUDA device since the last call, else the process's resident memory."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes on macOS, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_capacity(device: torch.device) -> int:
    """Return the bytes of memory of a CUDA device, else of the machine or of the process's control group."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    allowed = [int(text) for path in limits if path.exists() and (text := path.read_text().strip()).isdigit()]
    return min([machine, *allowed])


class Timing(Protocol):
    """Timer of work on a device, which also copies a few results to the host.

    Created when the work begins; ``end`` is called when all of it is queued, ``read`` when the results are needed.
    """

    def end(self, *results: Tensor) -> None:
        """Mark the end of the work and start copying its results, ``()`` each, without waiting."""

    def read(self) -> tuple[float, list[float]]:
        """Seconds between both marks, and the results. Waits for this work, never for work queued after it."""


class HostTiming:
    """``Timing`` of a synchronous device, the CPU."""

    def __init__(self) -> None:
        self._begun, self._ended, self._results = time.perf_counter(), 0.0, list[float]()

    def end(self, *results: Tensor) -> None:
        self._results = [result.item() for result in results]
        self._ended = time.perf_counter()

    def read(self) -> tuple[float, list[float]]:
        return self._ended - self._begun, self._results


class StreamTiming:
    """``Timing`` by events in a CUDA device's stream, with the results copied into pinned memory.

    The first event passes when the work queued before it is done, so the time of an update excludes an evaluation or
    a checkpoint before it, but includes the time in which the stream was idle because batches came late.
    """

    def __init__(self) -> None:
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._results: Tensor | None = None
        self._begin.record()

    def end(self, *results: Tensor) -> None:
        # Reading the tensors later would wait for all work queued until then.
        self._results = _pinned(len(results))
        self._results.copy_(torch.stack([result.double() for result in results]), non_blocking=True)
        self._end.record()

    def read(self) -> tuple[float, list[float]]:
        assert self._results is not None
        self._end.synchronize()
        return self._begin.elapsed_time(self._end) / 1e3, self._results.tolist()


def start_timing(device: torch.device) -> Timing:
    """Start timing the work queued on ``device``."""
    return StreamTiming() if device.type == "cuda" else HostTiming()


def _pinned(count: int) -> Tensor:
    """Allocate ``(count,)`` float64 in pinned memory, for asynchronous copies from a CUDA device."""
    return torch.empty(count, dtype=torch.float64, pin_memory=True)


def _finish(device: torch.device) -> None:
    """Wait for all work queued on a CUDA device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
