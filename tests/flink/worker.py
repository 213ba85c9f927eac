"""A worker of Flink's that keeps to a gate, or fails, as its environment variables say, and lists what it begins."""

import fcntl
import os
import time
from pathlib import Path

from corpora.errors import FarspanError
from pipelines import harness
from pipelines.engine import tasks


def main() -> None:
    """``pipelines.harness``; ``GATE``: file with the number of tasks that may begin, ``BEGUN``: file that lists them,
    ``FAIL``: name of a task."""
    perform = tasks.perform

    def perform_listed(task, work, *rest, **options):
        def listed(task, report):
            if "GATE" in os.environ:
                _pass(Path(os.environ["GATE"]), Path(os.environ["BEGUN"]), task.name)
            if task.name == os.environ.get("FAIL"):
                raise FarspanError("the disk of dreams is full")
            return work(task, report)

        return perform(task, listed, *rest, **options)

    tasks.perform = perform_listed
    harness.main()


def _pass(gate: Path, begun: Path, task: str) -> None:
    """Wait until the gate lets one task more begin, and list it."""
    while True:
        with begun.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if len(file.read().split()) < int(gate.read_text()):
                file.write(f"{task}\n")
                return
        time.sleep(0.05)
