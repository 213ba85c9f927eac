"""Run a job in a process that kills itself with -9 in the middle of a stage.

The process dies after the work of the stage's second task (of its only one) and before that task's receipt. It is
forked from a server that has imported Beam once and runs nothing else, which spares each of them seconds.
"""

import importlib
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pipelines.engine.job import Job, Stage
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job

# Python has one fork server a process, and the preload list that is set last wins; so there is one list.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["apache_beam", "pipelines.cli"])


def run_killed(module: str, function: str, stage: str, *arguments: object) -> None:
    """Run the job that ``module.function`` gives for the arguments, and see its process die."""
    with tempfile.NamedTemporaryFile() as errors:
        process = FORKS.Process(
            target=_run, args=(module, function, stage, arguments, dict(os.environ), errors.name), daemon=False
        )
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, Path(errors.name).read_text()


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


def _run(module: str, function: str, stage: str, arguments: tuple, environment: Mapping[str, str], errors: str) -> None:
    os.environ.update(environment)
    os.dup2(os.open(errors, os.O_WRONLY), 2)
    job = getattr(importlib.import_module(module), function)(*arguments)
    run_job(deadly(job, stage), Engine(workers=1))
