"""The processes of a run, started by torchrun, Slurm or by hand, and their communication.

Gradients and weights are sent in the default process group (NCCL on CUDA, gloo on a CPU). Control messages, a few
numbers per step, are sent in the control group, which is always gloo. So they wait for no kernel, and a dead process is
noticed within a second, when its connection closes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from corpora.errors import FarspanError, first_line, mark_raised_alike

Result = TypeVar("Result")

PATIENCE = timedelta(minutes=15)
"""Timeout for a live rank that does not answer; compilation, dry run and evaluation take less."""
_START_TIMEOUT = timedelta(minutes=5)  # how long ranks wait for each other to start
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class World:
    """All processes of a run, as seen by one of them; a single process needs no backend."""

    rank: int  # of this process, 0 to size - 1
    size: int  # number of processes
    local_rank: int  # among the processes of this machine
    local_size: int
    device: torch.device  # of this process
    control: dist.ProcessGroup | None = None  # gloo group for control messages; None for a single process

    @classmethod
    def alone(cls, device: torch.device | str = "cpu") -> World:
        """Describe a run of a single process."""
        return cls(0, 1, 0, 1, torch.device(device))

    @classmethod
    def from_environment(cls, device: str = "auto", environment: Mapping[str, str] = os.environ) -> World:
        """Join the other processes as ``RANK`` and ``WORLD_SIZE`` say, and choose a device."""
        size = _number(environment, "WORLD_SIZE", "1")
        if size < 1 or (size == 1 and _number(environment, "RANK", "0") != 0):
            raise FarspanError(
                f"WORLD_SIZE is {environment.get('WORLD_SIZE', 'not set')} and RANK {environment.get('RANK')}; start "
                "with torchrun, or set both for each process"
            )
        if size == 1:
            return cls.alone(_device(device, 0))
        missing = [name for name in _VARIABLES if name not in environment]
        if missing:
            raise FarspanError(
                f"WORLD_SIZE is {size}, but {', '.join(missing)} are not set; start with torchrun, or set them for "
                "each process"
            )
        rank, local = _number(environment, "RANK"), _number(environment, "LOCAL_RANK")
        if not 0 <= rank < size:
            raise FarspanError(f"RANK is {rank} with WORLD_SIZE {size}; ranks are 0 to {size - 1}")
        chosen = _device(device, local)
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        try:
            store, _, _ = next(dist.rendezvous("env://", rank, size, timeout=_START_TIMEOUT))
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE, store=store, rank=rank,
                world_size=size, device_id=chosen if chosen.type == "cuda" else None,
            )  # fmt: skip
        except (dist.DistError, RuntimeError, ValueError) as error:
            raise FarspanError(
                f"rank {rank} of {size} found no others at {environment['MASTER_ADDR']}:{environment['MASTER_PORT']} "
                f"({first_line(error)}); start all {size} processes with an address that all of them can reach"
            ) from error
        control = dist.new_group(backend="gloo", timeout=PATIENCE)
        return cls(rank, size, local, _number(environment, "LOCAL_WORLD_SIZE", str(size)), chosen, control)

    @property
    def first(self) -> bool:
        """True on rank 0, which writes files and messages for all."""
        return self.rank == 0

    def sum(self, *numbers: float) -> tuple[float, ...]:
        """Sum each number over all ranks in float64; bitwise equal on every rank."""
        if self.control is None:
            return numbers
        together = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(together, group=self.control)
        return tuple(together.tolist())

    def any(self, wish: bool) -> bool:
        """Return True if ``wish`` is true on any rank."""
        return bool(self.sum(wish)[0])

    def sum_on_device(self, value: Tensor) -> Tensor:
        """Sum a tensor on the device over all ranks, in place, without waiting for the device."""
        if self.control is not None:
            dist.all_reduce(value)
        return value

    def gather(self, values: Any) -> list[Any]:
        """Gather a JSON value from every rank, in the order of ranks, on every rank."""
        if self.control is None:
            return [values]
        written = json.dumps(values).encode()
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(written)]), group=self.control)
        longest = max(int(size) for size in sizes)
        # (longest,) uint8 per rank; JSON may end with blanks
        padded = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        own = torch.tensor(list(written.ljust(longest)), dtype=torch.uint8)
        dist.all_gather(padded, own, group=self.control)
        return [json.loads(bytes(part.tolist())) for part in padded]

    def barrier(self) -> None:
        """Wait for every rank."""
        self.sum(0.0)

    def close(self) -> None:
        """Leave the process group at the end of a successful run."""
        if self.control is not None:
            self.barrier()  # rank 0 keeps the store, so it must leave last
            dist.destroy_process_group()


def is_first() -> bool:
    """True on rank 0, and in a process that was not started with others."""
    return os.environ.get("RANK", "0") == "0"


def run_together(world: World, work: Callable[[], Any]) -> list[Any]:
    """Run ``work`` on every rank and return all results (JSON values) on every rank."""
    own: dict[str, Any] = {}
    raised: Exception | None = None
    try:
        own["value"] = work()
    except FarspanError as error:
        raised, own["refusal"] = error, str(error)
    except OSError as error:
        raised, own["failure"] = error, str(error)
    results = world.gather(own)
    with mark_raised_alike():
        for rank, result in enumerate(results):
            if raised and rank == world.rank:
                raise raised  # with its own traceback
            if "refusal" in result:
                raise FarspanError(result["refusal"])
            if "failure" in result:
                raise OSError(result["failure"])
    return [result["value"] for result in results]


def on_every_rank(world: World, work: Callable[[], Result]) -> Result:
    """Run ``work`` on every rank and return this rank's own result; ``work`` must not wait for other ranks."""
    results: list[Result] = []
    run_together(world, lambda: results.append(work()))
    return results[0]


@contextmanager
def explain_lost_processes(world: World) -> Iterator[None]:
    """Convert the backends' errors about a lost process into a ``FarspanError``."""
    try:
        yield
    except RuntimeError as error:
        if world.control is None or not _is_loss(error):
            raise
        raise FarspanError(
            f"rank {world.rank} of {world.size} lost another process of the run ({first_line(error)}); look for the "
            "cause in that one's output; the same command continues from the last checkpoint"
        ) from error


_LOSSES = (
    "gloo", "connection closed", "connection reset", "broken pipe", "timed out", "socket", "nccl", "process group",
)  # fmt: skip


def _is_loss(error: RuntimeError) -> bool:
    said = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in said for word in _LOSSES)


def _number(environment: Mapping[str, str], name: str, default: str = "") -> int:
    value = environment.get(name, default)
    try:
        return int(value)
    except ValueError:
        raise FarspanError(f"{name} is {value!r}; a whole number is needed") from None


def _device(name: str, local_rank: int) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cuda":
        return torch.device(name)
    if not torch.cuda.is_available():
        raise FarspanError("run.device is 'cuda', but PyTorch finds no CUDA device; set it to 'cpu' or 'auto'")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise FarspanError(
            f"process {local_rank} of this machine finds {count} CUDA devices; start at most one process for each"
        )
    return torch.device("cuda", local_rank)
