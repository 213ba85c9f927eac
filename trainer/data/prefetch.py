"""Prefetching of batches in threads or processes, ahead of their steps."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Literal

import torch
from torch import Tensor

from corpora.errors import FarspanError
from corpora.storage.shard_cache import ShardCache
from trainer.data.batch import Batch, Batches


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
) -> Iterator[Ahead]:
    """Make the batches of ``loader`` ahead, in threads or processes that end with the context."""
    with ExitStack() as stack:
        if not loading.processes:
            make, threads = loader.step, loading.ahead
        elif reopen is None:
            raise FarspanError(
                f"loading.processes is {loading.processes}, but the data was passed as an open source, which other "
                "processes cannot use; set it to 0, or name the data in the recipe"
            )
        else:
            make, threads = stack.enter_context(closing(Processes(reopen, loading.processes, steps))).step, 1
        yield stack.enter_context(closing(Ahead(make, loading.ahead, threads, steps, pinned)))


class Ahead:
    """Makes the batches of the next steps in threads, while the caller uses those of the current step."""

    def __init__(
        self, make: Callable[[int], list[Batch]], ahead: int, threads: int, steps: int, pinned: bool = False
    ) -> None:
        self._make, self._ahead, self._steps, self._pinned = make, ahead, steps, pinned
        self._threads = ThreadPoolExecutor(max(threads, 1), "batches")
        self._waiting: dict[int, Future[list[Batch]]] = {}

    def step(self, step: int) -> list[Batch]:
        """The batches of ``step``; steps should be requested in order."""
        needed = range(step, max(step + 1, min(step + self._ahead + 1, self._steps)))
        for number in self._waiting.keys() - set(needed):
            self._waiting.pop(number).cancel()
        for number in needed:
            if number not in self._waiting:
                self._waiting[number] = self._threads.submit(self._make_step, number)
        return self._waiting.pop(step).result()

    def close(self) -> None:
        """End the threads, after the batches that they are making."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _make_step(self, step: int) -> list[Batch]:
        batches = self._make(step)
        return [batch.map(Tensor.pin_memory) for batch in batches] if self._pinned else batches


class Processes:
    """Makes batches in other processes, which take the steps in turn.

    They ignore SIGINT and SIGTERM, and end when this process closes their connections or ends.
    """

    def __init__(self, reopen: Callable[[], Batches], count: int, steps: int) -> None:
        self._steps = steps
        self._requested: dict[int, Connection] = {}
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        context = multiprocessing.get_context("spawn")
        for number in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, reopen), name=f"batches-{number}", daemon=True)
            with _safe_path():
                process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def step(self, step: int) -> list[Batch]:
        """The batches of ``step``; also requests those of the following steps."""
        count = len(self._connections)
        for number in sorted(self._requested.keys() - set(range(step, step + count))):
            self._reply(number)  # drop the reply of a step that is no longer needed
        for number in range(step, max(step + 1, min(step + count, self._steps))):
            if number not in self._requested:
                self._requested[number] = self._connections[number % count]
                self._send(number)
        batches, error = self._reply(step)
        if error is not None:
            raise error
        return [batch.map(torch.from_numpy) for batch in batches]

    def close(self) -> None:
        """End the processes; one that does not end within seconds is killed."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()

    def _send(self, step: int) -> None:
        with suppress(OSError):  # a dead process is reported when its reply is missing
            self._requested[step].send(step)

    def _reply(self, step: int) -> tuple[list[Batch], Exception | None]:
        connection = self._requested.pop(step)
        try:
            return connection.recv()
        except (EOFError, OSError):
            process = self._processes[self._connections.index(connection)]
            process.join(timeout=5)
            raise FarspanError(
                f"the process that makes the batches of step {step + 1} ended with exit code {process.exitcode} (-9: "
                "killed, perhaps because memory ran out); lower loading.processes, or set it to 0"
            ) from None


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start Python processes without the current folder on their module path."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def _serve(connection: Connection, reopen: Callable[[], Batches]) -> None:
    """Answer each requested step with its batches, tensors as arrays, or with the error."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a job; the loop reacts to them
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(1)
    loader = None
    reply: tuple[list[Batch], Exception | None]
    with suppress(EOFError, OSError):  # the run has ended
        while True:
            step = connection.recv()
            try:
                loader = loader or reopen()
                reply = [batch.map(Tensor.numpy) for batch in loader.step(step)], None
            except FarspanError as error:
                reply = [], error
            except Exception:
                reply = [], RuntimeError(f"in a loading process:\n{traceback.format_exc()}")
            connection.send(reply)
    os._exit(0)  # skip Python's cleanup, which takes seconds with torch and has nothing to do
