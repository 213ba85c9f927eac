"""Parts of a long experiment: functions and ``farspan`` commands, each run once, after what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    """A piece of work.

    Attributes:
        name: for the progress lines and the log.
        finished: the file that is there once it is done.
        run: a function, or the words of a ``farspan`` command.
        needs: files of other parts that it reads.
    """

    name: str
    finished: Path
    run: Callable[[], object] | Sequence[str | Path]
    needs: tuple[Path, ...] = ()


def run_all(parts: Sequence[Part], jobs: int, log: Path) -> None:
    """Run the parts that are not finished, ``jobs`` at a time, each after the parts that make what it needs.

    Raises:
        SystemExit: a command failed; the parts that do not need it are finished first.
    """
    log.mkdir(parents=True, exist_ok=True)
    makers: dict[Path, Future[None]] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for part in parts:  # each comes after those that it needs, so a waiting part never blocks one that it needs
            waits = [makers[path] for path in part.needs]
            makers[part.finished] = pool.submit(_run, part, waits, jobs, log)
    failed = [part.name for part in parts if makers[part.finished].exception()]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(parts)} parts failed, the first is {failed[0]}; see {log}")


def _run(part: Part, waits: Sequence[Future[None]], jobs: int, log: Path) -> None:
    for future in waits:
        future.result()
    if part.finished.exists():
        return
    start = time.perf_counter()
    if callable(part.run):
        part.run()
    else:
        command = [str(Path(sys.executable).with_name("farspan")), *map(str, part.run)]
        threads = str(max((os.cpu_count() or 1) // jobs, 1))
        with (log / f"{part.name.replace(' ', '-')}.log").open("w") as out:
            out.write(f"$ farspan {' '.join(command[1:])}\n")
            out.flush()
            environment = {**os.environ, "OMP_NUM_THREADS": threads}
            subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env=environment, check=True)
    print(f"{part.name:<44}{time.perf_counter() - start:>8.1f} s", flush=True)
