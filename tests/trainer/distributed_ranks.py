"""Several gloo processes inside a test."""

import os
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from typing import Any

import torch

from trainer.parallel.distributed import World

TIMEOUT = 300.0


def start_ranks(size: int, work: Callable[..., Any], *arguments: Any) -> tuple[list[ForkProcess], Any]:
    """Start ``size`` processes that call ``work(ranks, *arguments)``; each puts ``(rank, result, error)`` in the queue.

    They are forked, so that PyTorch is not imported anew in each.
    """
    context = get_context("fork")
    results, port = context.SimpleQueue(), free_port()
    processes = [context.Process(target=_run, args=(r, size, port, work, arguments, results)) for r in range(size)]
    for process in processes:
        process.start()
    return processes, results


def on_ranks(size: int, work: Callable[..., Any], *arguments: Any, timeout: float = TIMEOUT) -> list[Any]:
    """Run ``work(world, *arguments)`` in each of ``size`` processes; its results, which must be picklable, by rank.

    Raises:
        AssertionError: a process failed, died, or was not done in time.
    """
    processes, results = start_ranks(size, work, *arguments)
    found: dict[int, Any] = {}
    end = time.monotonic() + timeout
    try:
        while len(found) < size:
            assert time.monotonic() < end, f"ranks {sorted(set(range(size)) - set(found))} are not done"
            if results.empty():
                died = [r for r, p in enumerate(processes) if p.exitcode not in (None, 0)]
                assert not died or not results.empty(), f"ranks {died} died"
                time.sleep(0.01)
                continue
            rank, result, error = results.get()
            assert error is None, f"rank {rank}:\n{error}"
            found[rank] = result
    finally:
        for process in processes:
            process.join(5 if len(found) == size else 0)
            process.kill()
    return [found[rank] for rank in range(size)]


def _run(rank: int, size: int, port: int, work: Callable[..., Any], arguments: tuple[Any, ...], results: Any) -> None:
    torch.set_num_threads(1)
    environment = {
        "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
    }  # fmt: skip
    os.environ.update({name: str(value) for name, value in environment.items()}, OMP_NUM_THREADS="1")
    try:
        world = World.from_environment("cpu")
        results.put((rank, work(world, *arguments), None))
        with suppress(RuntimeError):  # of a test that lost a rank
            world.close()
    except BaseException:
        results.put((rank, None, traceback.format_exc()))
    finally:
        os._exit(0)  # a fork must not run the test session's own exits


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
