"""The options of the engine that runs a job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

from corpora.errors import FarspanError
from corpora.options import NO_FLAG

EMBEDDED = "embedded"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The runner of a pipeline, and its workers.

    Attributes:
        runner: ``embedded``, or any Beam runner, e.g. PortableRunner, FlinkRunner.
        workers: processes of the embedded runner; 0 chooses by the size of the job.
        shared_folders: local paths are on a file system that workers on other machines share, such as NFS.
        worker_timeout: seconds without a sign of life of workers on other machines, after which the job is cancelled
            (default: 60 for the first sign, later 300 on engines that restart workers).
        beam_flags: Beam's own flags, unchanged.
    """

    runner: str = EMBEDDED
    workers: int = 0
    shared_folders: bool = False
    worker_timeout: int = 0
    beam_flags: Annotated[tuple[str, ...], NO_FLAG] = ()

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise FarspanError(f"--workers {self.workers}: give 0 (by the size of the job) or a positive number")
        if self.worker_timeout < 0:
            raise FarspanError(f"--worker-timeout {self.worker_timeout}: give a positive number of seconds")

    def worker_count(self, tasks: int, work_bytes: int) -> int:
        """Number of processes to start: one for a job that ends before a second one is up."""
        if self.workers:
            return max(1, min(self.workers, tasks))
        if work_bytes < 16 << 20:
            return 1
        return max(1, min(len(os.sched_getaffinity(0)), tasks))
