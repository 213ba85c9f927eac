"""Run a job in a process that kills itself with -9 in the middle of a stage.

``python -m tests.killing MODULE FUNCTION STAGE ARGUMENTS`` runs the job that the function gives for its JSON arguments;
the process dies after the work of the stage's second task (of its only one) and before that task's receipt.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from pipelines.engine import Engine
from pipelines.job import Job, Stage, run_job


def run_killed(module: str, function: str, stage: str, *arguments: object) -> None:
    """Run and see it die."""
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-m", "tests.killing", module, function, stage, json.dumps(arguments)]
    ended = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def deadly(job: Job, name: str) -> Job:
    """The job with a stage that kills its process."""
    (deadly,) = [stage for stage in job.stages if stage.name == name]
    last = deadly.tasks[min(1, len(deadly.tasks) - 1)].name

    def work(task, report):
        receipt = deadly.work(task, report)
        if task.name == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return receipt

    stages = [Stage(s.name, s.tasks, work, s.unit) if s.name == name else s for s in job.stages]
    return replace(job, stages=stages)


if __name__ == "__main__":
    module, function, stage, arguments = sys.argv[1:]
    job = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    run_job(deadly(job, stage), Engine(workers=1))
