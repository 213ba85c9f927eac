"""Measurements of a device: peak throughput, memory, timing."""

from __future__ import annotations

import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from trainer.options import Precision


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
    median = statistics.median(seconds[1:])  # without the first round, which loads the kernel
    return products * 2 * size**3 / median / 1e12


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


class Timing:
    """Timer of work on a device, which also copies a few results to the host.

    Created when the work begins; ``end`` is called when all of it is queued, ``read`` when the results are needed.

    A CUDA device is timed by events in its stream. The first one passes when the work queued before it is done, so the
    time of an update excludes an evaluation or a checkpoint before it, but includes the time in which the stream was
    idle because batches came late.
    """

    def __init__(self, device: torch.device) -> None:
        self._begun, self._seconds, self._results = time.perf_counter(), 0.0, torch.empty(0)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else []
        for event in self._events[:1]:
            event.record()

    def end(self, *results: Tensor) -> None:
        """Mark the end of the work and start copying its results, ``()`` each, without waiting."""
        together = torch.stack([result.double() for result in results])
        if self._events:  # reading the tensors later would wait for all work queued until then
            self._results = _pinned(len(results))
            self._results.copy_(together, non_blocking=True)
            self._events[1].record()
        else:
            self._results, self._seconds = together, time.perf_counter() - self._begun

    def read(self) -> tuple[float, list[float]]:
        """Seconds between both marks, and the results. Waits for this work, never for work queued after it."""
        if self._events:
            begin, end = self._events
            end.synchronize()
            self._seconds = begin.elapsed_time(end) / 1e3
        return self._seconds, self._results.tolist()


def _pinned(count: int) -> Tensor:
    """Allocate ``(count,)`` float64 in pinned memory, for asynchronous copies from a CUDA device."""
    return torch.empty(count, dtype=torch.float64, pin_memory=True)


def _finish(device: torch.device) -> None:
    """Wait for all work queued on a CUDA device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
