"""Options of the engine that runs a job and of ``farspan finalize``, and Beam's flags for object stores."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, Flag
from pipelines.options import ErrorBudget

EMBEDDED = "embedded"
LEASE = 60
"""Seconds without a sign of life, after which a process counts as dead."""
_SMALL = 16 << 20  # bytes of work done before a second process has started
EngineName = Literal["auto", "beam", "cooperative"]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine that runs a job, its runner and its workers.

    Attributes:
        engine: ``auto``: this process, or others that it starts if one is not enough for the job, or Beam if a runner
            or flags of Beam are given; ``beam``; or ``cooperative``: any number of processes, started by anything with
            the same command, share the job through files in ``--output``.
        runner: of Beam: ``embedded``, or any other, e.g. PortableRunner, FlinkRunner.
        workers: processes on this machine; 0 chooses one for less than 16 MiB of work, else one a core, or one a GPU
            for work that GPUs do.
        shared_folders: local paths are on a file system that workers on other machines share, such as NFS.
        worker_timeout: seconds until a line says that no task has begun on an engine of Beam (default: 60; on
            Dataflow, which starts machines first, 900).
        lease: seconds without a sign of life, after which a process on another machine counts as dead.
        grace: seconds that SIGTERM leaves a process of the cooperative engine to finish its task.
        estimate: do about ten seconds of the work in a temporary folder, print the time, memory and disk that the
            whole job takes here, and stop; the job then logs beside its folder how long it really took.
        beam_flags: Beam's own flags, unchanged.
    """

    engine: EngineName = "auto"
    runner: str = EMBEDDED
    workers: int = 0
    shared_folders: bool = False
    worker_timeout: int = 0
    lease: int = LEASE
    grace: int = 20
    estimate: bool = False
    beam_flags: Annotated[tuple[str, ...], NO_FLAG] = ()

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise FarspanError(f"--workers {self.workers}: give 0 (by the size of the job) or a positive number")
        if self.worker_timeout < 0:
            raise FarspanError(f"--worker-timeout {self.worker_timeout}: give a positive number of seconds")
        for name, value, least in (("lease", self.lease, 1), ("grace", self.grace, 0)):
            if value < least:
                raise FarspanError(f"--{name} {value}: give a number of seconds from {least}")
        if self.engine == "beam" and self.runner == EMBEDDED and self.workers > 1:
            raise FarspanError(
                f"--workers {self.workers}: Beam's embedded runner works in this process; leave out --engine beam, or "
                "give a --runner"
            )
        if self.estimate and (self.engine != "auto" or self.runner != EMBEDDED):
            raise FarspanError("--estimate: measures processes of this machine; leave out --engine and --runner")
        if self.engine == "cooperative" and self.runner != EMBEDDED:
            raise FarspanError(f"--engine cooperative: has no --runner {self.runner}; leave out one of the two")
        if self.engine == "cooperative" and self.workers > 1:
            raise FarspanError(
                f"--workers {self.workers}: a process of --engine cooperative does one task at a time; start the same "
                f"command {self.workers} times, as `srun --ntasks={self.workers}` does"
            )

    def worker_count(self, tasks: int, work_bytes: int, most: int | None = None) -> int:
        """Return the number of processes to start: one for a small job, else ``most``, or one a core."""
        if self.workers:
            return max(1, min(self.workers, tasks))
        if work_bytes < _SMALL:
            return 1
        return max(1, min(most or len(os.sched_getaffinity(0)), tasks))

    def needs_beam(self) -> bool:
        """True if Beam was asked for, by name, by its runner or by flags other than those of object stores."""
        others = [flag for flag in self.beam_flags if flag.startswith("--") and not flag.startswith("--s3_")]
        return self.engine == "beam" or self.runner != EMBEDDED or bool(others)


@dataclass(frozen=True, kw_only=True)
class Finalize:
    """Options of ``farspan finalize``.

    Attributes:
        output: folder of the job.
    """

    output: Annotated[str, Flag(positional=True)]
    error_budget: ErrorBudget = 0.01


def use_store_flags(rest: Sequence[str]) -> list[str]:
    """Set up the stores of this process by Beam's flags ``--s3_*``, and return the other arguments.

    Every command and worker takes them. For those left out, AWS's variables and profile count.
    """
    from corpora.storage.stores import connect

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in connect.S3_SETTINGS:
        parser.add_argument(f"--{name}", default=argparse.SUPPRESS)
    parser.add_argument("--s3_disable_ssl", action="store_true", default=argparse.SUPPRESS)
    flags, others = parser.parse_known_args(list(rest))
    connect.use_s3_settings(vars(flags))
    return others
