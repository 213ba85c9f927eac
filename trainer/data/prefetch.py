"""Prefetching: batches are made in threads or processes before their step."""

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
from corpora.storage.copies.shard_cache import ShardCache
from trainer.data.batch import Batch, Batches


@dataclass(frozen=True, kw_only=True)
class LoadingConfig:
    """Options of loading, which do not affect the contents of batches.

    Attributes:
        ahead: number of steps whose batches are made in advance, in threads; 0 makes them on demand.
        processes: number of processes that make batches instead of threads, for objectives that are drawn on the fly
            more slowly than the model trains.
        verify: when to compare shards with their checksums: all of them at the ``start``, divided among the ranks;
            ``lazily``, each when it is first read, if reading them all would take too long; or ``never``.
        cache_gib: size in GiB of the cache on local disk that the shards of remote corpora and mask sets are fetched
            to, ahead of the steps that read them; None copies whole artefacts before the first step.

    Raises:
        FarspanError: counts below 0, a size that is not above 0.
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
    def cache(self) -> ShardCache | None:
        """The cache of remote shards; None for whole copies."""
        return None if self.cache_gib is None else ShardCache(int(self.cache_gib * 2**30))


@contextmanager
def prefetched(
    loader: Batches,
    loading: LoadingConfig,
    steps: int,
    *,
    reopen: Callable[[], Batches] | None = None,
    pinned: bool = False,
) -> Iterator[Ahead]:
    """The batches of ``loader``, made ahead; when the context ends, so do all threads and processes.

    Args:
        loader: loader of this rank.
        loading: configuration.
        steps: number of steps of the run; no batches are made beyond them.
        reopen: opens the same loader in another process; pickled; needed for ``loading.processes``.
        pinned: put tensors in pinned memory, for asynchronous copies to a CUDA device.

    Raises:
        FarspanError: ``loading.processes`` without ``reopen``.
    """
    with ExitStack() as stack:
        if not loading.processes:
            make, threads = loader.step, loading.ahead
        elif reopen is None:
            raise FarspanError(
                f"loading.processes is {loading.processes}, but the data was handed over already open, which other "
                "processes cannot do; set it to 0, or let the recipe name the data"
            )
        else:
            make, threads = stack.enter_context(closing(Processes(reopen, loading.processes, steps))).step, 1
        yield stack.enter_context(closing(Ahead(make, loading.ahead, threads, steps, pinned)))


class Ahead:
    """Makes the batches of the steps that come next in threads, while the caller uses those of this one."""

    def __init__(
        self, make: Callable[[int], list[Batch]], ahead: int, threads: int, steps: int, pinned: bool = False
    ) -> None:
        self._make, self._ahead, self._steps, self._pinned = make, ahead, steps, pinned
        self._threads = ThreadPoolExecutor(max(threads, 1), "batches")
        self._waiting: dict[int, Future[list[Batch]]] = {}

    def step(self, step: int) -> list[Batch]:
        """The batches of ``step``; steps should be requested in order.

        Raises:
            What making them raised, here and not earlier.
        """
        wanted = range(step, max(step + 1, min(step + self._ahead + 1, self._steps)))
        for number in self._waiting.keys() - set(wanted):
            self._waiting.pop(number).cancel()
        for number in wanted:
            if number not in self._waiting:
                self._waiting[number] = self._threads.submit(self._made, number)
        return self._waiting.pop(step).result()

    def close(self) -> None:
        """End the threads; what they are making is finished first and thrown away."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _made(self, step: int) -> list[Batch]:
        batches = self._make(step)
        return [batch.map(Tensor.pin_memory) for batch in batches] if self._pinned else batches


class Processes:
    """Makes batches in processes of their own, each a step in turn.

    They leave signals to this process, and end when it closes their connections, or is gone.
    """

    def __init__(self, reopen: Callable[[], Batches], count: int, steps: int) -> None:
        """
        Args:
            reopen: opens the loader in each of them; pickled.
            count: of processes.
            steps: of the run.
        """
        self._steps = steps
        self._asked: dict[int, Connection] = {}
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
        """The batches of ``step``; also requests those of the following steps.

        Raises:
            FarspanError: what the process raised, or that it died.
        """
        count = len(self._connections)
        for number in sorted(self._asked.keys() - set(range(step, step + count))):
            self._reply(number)  # of a step that is no longer needed
        for number in range(step, max(step + 1, min(step + count, self._steps))):
            if number not in self._asked:
                self._asked[number] = self._connections[number % count]
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
            self._asked[step].send(step)

    def _reply(self, step: int) -> tuple[list[Batch], Exception | None]:
        connection = self._asked.pop(step)
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
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to all processes of a job, they are the loop's to answer
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
    os._exit(0)  # there is nothing to tidy up, which takes Python seconds once torch is loaded
