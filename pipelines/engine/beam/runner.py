"""Beam's embedded runner, in process or with worker processes, whose death is detected."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
from collections.abc import Callable
from typing import Any

from corpora.errors import FarspanError
from pipelines.engine.options import Engine


class EngineStopped(FarspanError):
    """The engine ended the job, and not a task; its message is complete."""


class WorkerDied(EngineStopped):
    """A worker process was killed or crashed; the runner alone would wait for it forever."""

    @classmethod
    def here(cls, how: str = "was killed or crashed (out of memory is the usual reason)") -> WorkerDied:
        """The error for a process of this machine.

        Args:
            how: it ended.
        """
        return cls(
            f"a worker process {how}; finished work is kept: run the same command again to resume, with fewer "
            "--workers if memory is short"
        )


def run_pipeline(build: Callable[[Any], None], engine: Engine, workers: int) -> None:
    """Run a pipeline to its end.

    Args:
        build: adds the transforms to an empty ``beam.Pipeline``.
        workers: processes for the embedded runner; 1 stays in this process.

    Raises:
        WorkerDied: a worker process was killed or crashed.
        Exception: what the pipeline raised.
    """
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # a failed task is reported once, by its own message
    from pipelines.engine.beam.apache import PipelineOptions
    from pipelines.engine.beam.loopback import serve_on_loopback

    serve_on_loopback()
    options = PipelineOptions([f"--direct_num_workers={workers}", *engine.beam_flags], save_main_session=False)
    _run_embedded(build, options, workers)


def _run_embedded(build: Callable[[Any], None], options: Any, workers: int) -> None:
    """Run on the embedded runner in a separate thread, and detect the death of worker processes."""
    from pipelines.engine.beam.apache import beam
    from pipelines.engine.beam.notebook import without_interactive_labels

    failure: list[BaseException] = []
    ended, died = threading.Event(), threading.Event()

    def run() -> None:
        try:
            with without_interactive_labels():
                pipeline = beam.Pipeline(runner=_embedded_runner(options, workers), options=options)
                build(pipeline)
                pipeline.run().wait_until_finish()
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    def watch(arguments: threading.ExceptHookArgs) -> None:
        if "Worker subprocess exited" in str(arguments.exc_value):
            died.set()
            ended.set()
        else:
            previous(arguments)

    # Beam waits forever for a worker process that was killed; only this hook notices.
    previous, threading.excepthook = threading.excepthook, watch
    try:
        threading.Thread(target=run, name="farspan-pipeline", daemon=True).start()
        while not ended.wait(1.0):  # a finite wait leaves the main thread open to Ctrl-C
            pass
    finally:
        threading.excepthook = previous
    if died.is_set():
        raise WorkerDied.here()
    if failure:
        raise failure[0]


def search_path() -> list[str]:
    """The module search path of this process, for a worker process.

    The current folder, which a notebook searches first, comes last: it may hold a plug-in, but also a ``secrets.py``.
    """
    folders = [path for path in sys.path if path] + [os.curdir] * ("" in sys.path)
    return [os.path.abspath(path) for path in folders]


def worker_command() -> str:
    """The shell command of a worker process; ``-P`` does not put the current folder first."""
    search = f"PYTHONPATH={os.pathsep.join(search_path())}"
    return shlex.join(["env", search, sys.executable, "-P", "-m", "pipelines.engine.beam.worker", str(os.getpid())])


def _embedded_runner(options: Any, workers: int) -> Any:
    """FnApiRunner in this process, or over ``pipelines.engine.beam.worker`` processes.

    The processes receive the pipeline's options, such as file-system settings, which the runner alone does not pass on.
    """
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    processes = SubprocessSDKEnvironment.from_command_string(worker_command()) if workers > 1 else None
    return fn_runner.FnApiRunner(processes, provision_info=fn_runner.ExtendedProvisionInfo(provision))
