"""The loader: the batches of each step of a run, made ahead of their steps in threads or processes."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.storage.shard_cache import ShardCache
from trainer.data.batch import Batch, Batches, collate
from trainer.data.curriculum import Stage, stage_number
from trainer.data.mixture import Mixture
from trainer.data.order import partition
from trainer.data.remote_shards import ShardsAhead


@dataclass(frozen=True)
class Loader:
    """The batches of one rank. It has no state: the number of finished steps determines the next batch."""

    curriculum: Sequence[Stage]
    mixtures: Sequence[Mixture]  # training data of each stage
    seed: int  # of the order
    rank: int = 0  # selects micro-batches, as world_size does; the global batches do not depend on them
    world_size: int = 1
    ahead: ShardsAhead | None = None  # fetches shards of the coming steps; None if all data is on local disk

    def step(self, step: int) -> list[Batch]:
        """Make this rank's micro-batches of ``step``, counted from 0; every rank has the same number of them.

        A micro-batch holds neighbouring samples of the step. If there are not enough samples for a last
        micro-batch on every rank, the other ranks get one without targets.
        """
        if self.ahead:
            self.ahead.at(step)
        stage, mixture = self.at(step)
        samples = np.asarray(stage.samples(step), np.int64)
        rows, epochs = mixture.sequences(samples, self.seed)

        def make(cut: slice) -> Batch:
            return collate(mixture.examples(rows[cut], epochs[cut]), samples[cut], stage.data, mixture.special)

        cuts = partition(stage.batch_size, stage.micro_batch_size, self.rank, self.world_size)
        batches = [make(cut) for cut in cuts if cut is not None]
        first = batches[0] if batches else make(slice(0, stage.micro_batch_size))
        return batches + [first.without_targets()] * (len(cuts) - len(batches))

    def at(self, step: int) -> tuple[Stage, Mixture]:
        """The stage of ``step`` and its training data."""
        number = stage_number(self.curriculum, step)
        return self.curriculum[number], self.mixtures[number]


@dataclass(frozen=True, kw_only=True)
class LoadingConfig:
    """Options of loading, which do not affect the contents of batches.

    Attributes:
        ahead: number of steps whose batches are made in advance, in threads; 0 makes them on demand.
        processes: number of processes that make batches instead of threads, for objectives whose draws take longer than
            the model's steps.
        verify: when to compare shards with their checksums: all of them at the ``start``, divided among the ranks;
            ``lazily``, each when it is first read, if reading them all would take too long; or ``never``.
        cache_gib: size in GiB of a cache on local disk, to which the shards of remote data are fetched ahead of the
            steps that read them; None copies all shards there before the first step.
    """

    ahead: int = 2
    processes: int = 0
    verify: Literal["start", "lazily", "never"] = "start"
    cache_gib: float | None = None

    def __post_init__(self) -> None:
        for name in ("ahead", "processes"):
            if getattr(self, name) < 0:
                raise FarspanError(f"loading.{name} is {getattr(self, name)}; it must be at least 0")
        if self.cache_gib is not None and not 0 < self.cache_gib < math.inf:
            raise FarspanError(f"loading.cache_gib is {self.cache_gib}; it must be above 0")

    @property
    def cache(self) -> ShardCache:
        """The cache of remote shards."""
        return ShardCache.of_gib(self.cache_gib)


@contextmanager
def prefetch(
    loader: Batches,
    loading: LoadingConfig,
    steps: int,
    *,
    reopen: Callable[[], Batches] | None = None,
    pinned: bool = False,
) -> Iterator[Batches]:
    """Make the batches of ``loader`` ahead, in threads or, if it can be opened again, in processes.

    They end with the context.
    """
    if not loading.processes:
        executor: Executor = ThreadPoolExecutor(max(loading.ahead, 1), "batches")
        ahead = _Ahead(executor, loader.step, loading.ahead, steps, pinned)
    elif reopen is None:
        raise FarspanError(
            f"loading.processes is {loading.processes}, but the data was passed as an open source, which other "
            "processes cannot use; set it to 0, or name the data in the recipe"
        )
    else:
        executor = _Processes(loading.processes, multiprocessing.get_context("spawn"), _begin_process, (reopen,))
        ahead = _Ahead(executor, _make_arrays, loading.ahead + loading.processes, steps, pinned)
    try:
        yield ahead
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


class _Ahead:
    """Makes the batches of the next steps, while the caller uses those of the current step."""

    def __init__(
        self, executor: Executor, make: Callable[[int], Sequence[Batch]], ahead: int, steps: int, pinned: bool
    ) -> None:
        self._executor, self._make, self._ahead, self._steps, self._pinned = executor, make, ahead, steps, pinned
        self._waiting: dict[int, Future[Sequence[Batch]]] = {}

    def step(self, step: int) -> list[Batch]:
        """The batches of ``step``; steps should be requested in order."""
        needed = range(step, max(step + 1, min(step + self._ahead + 1, self._steps)))
        for number in self._waiting.keys() - set(needed):
            self._waiting.pop(number).cancel()
        try:
            for number in needed:
                if number not in self._waiting:
                    self._waiting[number] = self._executor.submit(self._make, number)
            batches = self._waiting.pop(step).result()
        except BrokenProcessPool:
            raise FarspanError(
                f"a process that makes batches ended before those of step {step + 1} were made (killed, perhaps "
                "because memory ran out); lower loading.processes, or set it to 0"
            ) from None
        return [batch.map(self._receive) for batch in batches]

    def _receive(self, values: Tensor | np.ndarray) -> Tensor:
        tensor = torch.as_tensor(values)
        return tensor.pin_memory() if self._pinned else tensor


class _Processes(ProcessPoolExecutor):
    """Processes that find no module in the current folder, and leave SIGINT and SIGTERM to the run.

    Both signals are sent to all processes of a job. A process inherits that they are blocked, so it can never be hit.
    """

    def submit(self, *task: Any, **arguments: Any) -> Future[Any]:
        """Submit a task, for which a process may start."""
        path = os.environ.get("PYTHONSAFEPATH")
        os.environ["PYTHONSAFEPATH"] = "1"
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            return super().submit(*task, **arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            if path is None:
                del os.environ["PYTHONSAFEPATH"]
            else:
                os.environ["PYTHONSAFEPATH"] = path


class _Process:
    """The loader of a loading process, opened for its first batches."""

    reopen: Callable[[], Batches]
    loader: Batches | None = None


def _begin_process(reopen: Callable[[], Batches]) -> None:
    """Prepare a loading process, which ends with the run."""
    threading.Thread(target=_end_with_run, daemon=True).start()
    torch.set_num_threads(1)
    _Process.reopen = reopen


def _end_with_run() -> None:
    run = multiprocessing.parent_process()
    assert run is not None
    run.join()
    os._exit(1)


def _make_arrays(step: int) -> list[Batch]:
    """Make the batches of a step in a loading process, with arrays for tensors, which other processes can read."""
    _Process.loader = _Process.loader or _Process.reopen()
    return [batch.map(Tensor.numpy) for batch in _Process.loader.step(step)]
