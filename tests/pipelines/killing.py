"""Run a job that is killed in the middle: ``python -m tests.pipelines.killing WORK TASK COMMAND...``.

WORK is the class of a stage's work, ``module:Class``. The process ends by SIGKILL when TASK has written its output and
not yet its receipt.
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys


def killed(work: str, task: str, command: list[str]) -> None:
    """Run ``farspan COMMAND`` in a process of its own and see it die in ``task``."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    arguments = [sys.executable, "-m", "tests.pipelines.killing", work, task, *command]
    ended = subprocess.run(arguments, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def main(work: str, name: str, *command: str) -> None:
    module, _, kind = work.partition(":")
    stage = getattr(importlib.import_module(module), kind)
    call = stage.__call__

    def deadly(self, task, report):
        receipt = call(self, task, report)
        if task.name == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    stage.__call__ = deadly
    from pipelines.cli import main as farspan

    farspan(list(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
