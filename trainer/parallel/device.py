"""What a device can do, how much it holds and how much of that is in use: measured, or not known."""

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


def peak_tflops(
    setting: float | Literal["measure"] | None, device: torch.device, precision: Literal["bf16", "fp32"]
) -> float | None:
    """What a share of the peak refers to: 10^12 operations a second of one device, None where it is not to be known.

    Args:
        setting: ``metrics.peak_tflops``.
        device: to measure, with what else it does at the time.
        precision: of the run.
    """
    if setting == "measure":
        return measured_tflops(device, torch.bfloat16 if precision == "bf16" else torch.float32)
    return setting


def measured_tflops(device: torch.device, dtype: torch.dtype, rounds: int = 5) -> float:
    """10^12 operations a second of the product of two large square matrices of ``dtype``, the median of ``rounds``.

    On a CUDA device they have 8,192 rows, elsewhere 1,024; it takes less than a second.
    """
    size, products = (8192, 10) if device.type == "cuda" else (1024, 1)
    generator = torch.Generator(device).manual_seed(0)  # the run's own random numbers stay as they are
    # Random: with zeros a GPU draws less power and runs faster than it ever will with numbers.
    left, right = torch.randn(2, size, size, device=device, generator=generator).to(dtype).unbind()
    seconds = []
    for _ in range(1 + rounds):
        _finish(device)
        begin = time.perf_counter()
        for _ in range(products):
            left @ right
        _finish(device)
        seconds.append(time.perf_counter() - begin)
    return products * 2 * size**3 / statistics.median(seconds[1:]) / 1e12  # the first one loads the kernel


def memory_in_use(device: torch.device) -> int:
    """Bytes: the most that a CUDA device had to hold at once since the last call; elsewhere what the process holds."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_capacity(device: torch.device) -> int:
    """Bytes that a CUDA device has; elsewhere those of the machine, or of the control group that the process is in."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    allowed = [int(text) for path in limits if path.exists() and (text := path.read_text().strip()).isdigit()]
    return min([machine, *allowed])


class Timing(Protocol):
    """The time that a device takes for a piece of work, and a few of its results.

    Made when the work begins; ``end`` is called when all of it is queued, ``read`` whenever the results are wanted.
    """

    def end(self, *results: Tensor) -> None:
        """Mark the end of the work and begin to copy its results, ``()`` each; waits for nothing."""

    def read(self) -> tuple[float, list[float]]:
        """Seconds between both marks, and the results. Waits for this work, never for work queued after it."""


class HostTiming:
    """``Timing`` of a device that works while the process waits, which is what a CPU does."""

    def __init__(self) -> None:
        self._begun, self._ended, self._results = time.perf_counter(), 0.0, list[float]()

    def end(self, *results: Tensor) -> None:
        self._results = [result.item() for result in results]
        self._ended = time.perf_counter()

    def read(self) -> tuple[float, list[float]]:
        return self._ended - self._begun, self._results


class StreamTiming:
    """``Timing`` by events in a CUDA device's stream, with the results copied into pinned memory.

    The first event passes when the work queued before it is done, so an update is not charged for an evaluation or a
    checkpoint before it; the time in which the stream stood idle because batches came late is the update's own.
    """

    def __init__(self) -> None:
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._results: Tensor | None = None
        self._begin.record()

    def end(self, *results: Tensor) -> None:
        # Reading the device's tensors later would wait for all that is queued by then.
        self._results = _pinned(len(results))
        self._results.copy_(torch.stack([result.double() for result in results]), non_blocking=True)
        self._end.record()

    def read(self) -> tuple[float, list[float]]:
        assert self._results is not None
        self._end.synchronize()
        return self._begin.elapsed_time(self._end) / 1e3, self._results.tolist()


def start_timing(device: torch.device) -> Timing:
    """Begin to time what ``device`` is given to do."""
    return StreamTiming() if device.type == "cuda" else HostTiming()


def _pinned(count: int) -> Tensor:
    """``(count,)`` float64 in memory that a CUDA device can write to while the process goes on."""
    return torch.empty(count, dtype=torch.float64, pin_memory=True)


def _finish(device: torch.device) -> None:
    """Wait for what a CUDA device was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
