"""An engine of Beam: submission of pipelines, their cancellation, and the engine's own reason of a failure."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc

from corpora.errors import FarspanError
from corpora.reporting import note, tell_error
from corpora.storage.files import is_local
from pipelines.engine.beam.apache import PipelineOptions, beam, serve_on_loopback, without_interactive_labels
from pipelines.engine.beam.servers import EngineStopped, Flink, JobServer, address_of, own_job_servers
from pipelines.engine.job import REPEAT, Task
from pipelines.engine.options import EMBEDDED, Engine
from pipelines.interrupts import Interrupts

from apache_beam.options import pipeline_options  # isort: skip

_HERE = ("LOOPBACK", "beam:env:embedded_python:v1", "beam:env:embedded_python_grpc:v1")
_LOCAL_RUNNERS = (
    EMBEDDED,
    "DirectRunner",
    "SwitchingDirectRunner",
    "BundleBasedDirectRunner",
    "FnApiRunner",
    "PrismRunner",
)
_READER = "wait_until_finish_read"  # Beam's thread that reads an engine's messages
_NO_PIP_FREEZE = "disable_logging_submission_environment"  # seconds for a list that no worker reads
_LOOK_SECONDS = (1.0, 60.0)  # between two looks at the folder, at least and at most
CANCEL_SECONDS = 60.0


def workers_are_here(engine: Engine) -> bool:
    """Return True if, by its flags, an engine runs its workers on this machine."""
    options = PipelineOptions(list(engine.beam_flags))
    kind = options.view_as(pipeline_options.PortableOptions).environment_type
    runner = engine.runner.rpartition(".")[2]
    master = options.view_as(pipeline_options.FlinkRunnerOptions).flink_master
    spark = str(options.view_as(pipeline_options.SparkRunnerOptions).spark_master_url)
    loops_back = (runner == "FlinkRunner" and not address_of(master)) or (
        runner == "SparkRunner" and spark.startswith("local")
    )
    return runner in _LOCAL_RUNNERS or kind in _HERE or (loops_back and not kind)


def require_shared(engine: Engine, output: str) -> None:
    """Refuse a folder of this machine for workers of others."""
    if is_local(output) and not engine.shared_folders and not workers_are_here(engine):
        raise FarspanError(
            f"--output {output}: is on this machine, and the workers of {engine.runner} are elsewhere; give a folder "
            "on an object store, or --shared-folders if all workers see this path and the inputs', as with NFS"
        )


class BeamEngine:
    """Runs pipelines, under one ``name``, on the engine that ``--runner`` names, while the context is open."""

    def __init__(self, engine: Engine, output: str) -> None:
        logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # a failed task is reported by its own message
        flags = [] if engine.runner == EMBEDDED else [f"--runner={engine.runner}"]
        self._options = PipelineOptions([*flags, *engine.beam_flags], save_main_session=False)
        self._options.view_as(pipeline_options.DebugOptions).add_experiment(_NO_PIP_FREEZE)
        cloud = self._options.view_as(pipeline_options.GoogleCloudOptions)
        folder = re.sub(r"[^a-z0-9]+", "-", os.path.basename(output.rstrip("/")).lower()).strip("-") or "job"
        cloud.job_name = cloud.job_name or f"farspan-{folder}-{uuid.uuid4().hex[:8]}"
        master = self._options.view_as(pipeline_options.FlinkRunnerOptions).flink_master
        address = address_of(master) if engine.runner.rpartition(".")[2] == "FlinkRunner" else ""
        self._flink = Flink(address) if address else None
        self._engine, self.name = engine, str(cloud.job_name)
        self._stack, self._servers = ExitStack(), list[JobServer]()
        self._result: Any = None
        self._submitted = threading.Event()

    def __enter__(self) -> BeamEngine:
        serve_on_loopback()
        self._stack.enter_context(Interrupts(0))  # SIGTERM cancels the job, as Ctrl-C does
        self._stack.enter_context(_quiet_beam())
        self._servers = self._stack.enter_context(own_job_servers())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, tasks: Sequence[Task], work: Callable[[Task], str], look: Callable[[str], bool]) -> None:
        """Run a pipeline to its end; cancel it when this process is interrupted, or ``look`` raises.

        ``look`` is called at times, with the engine's reason for a failure, if it gives one; it returns True to go on
        without the engine, which hangs though all tasks are done.
        """
        self._result, self._submitted = None, threading.Event()
        ended, failure = threading.Event(), list[BaseException]()

        def wait() -> None:
            try:
                with without_interactive_labels():
                    pipeline = beam.Pipeline(runner=self._runner(len(tasks)), options=self._options)
                    done = pipeline | "tasks" >> beam.Create(tasks) | "spread" >> beam.Reshuffle()
                    _ = done | "work" >> beam.Map(work)
                    self._result = pipeline.run()
                self._submitted.set()
                self._result.wait_until_finish()
            except BaseException as error:
                failure.append(error)
            finally:
                self._submitted.set()
                ended.set()

        threading.Thread(target=wait, name="farspan-pipeline", daemon=True).start()
        pause, begun = 0.0, time.monotonic()
        try:
            while not ended.wait(max(pause, _LOOK_SECONDS[0])):
                before = time.monotonic()
                if look(self._last_error() if before - begun > 10 else ""):
                    note(f"all tasks are done, and {self} does not end: going on without it")
                    break
                pause = min(20 * (time.monotonic() - before), _LOOK_SECONDS[1])
            if not failure:
                look("")
            if client := getattr(self._result, "client", None):
                client.close()  # Dask's
        except BaseException:
            self._cancel()
            raise
        if not ended.is_set():
            self._cancel()
        if failure:
            raise self._explain(failure[0]) from failure[0]

    def __str__(self) -> str:
        return f"job {self.name} of {self._engine.runner}" + (f" at {self._flink.address}" if self._flink else "")

    def _runner(self, tasks: int) -> Any:
        """The embedded runner in this process; None for one that Beam makes by its name."""
        runner = self._engine.runner.rpartition(".")[2]
        if runner == "DaskRunner":  # by itself it would give 128 tasks to one worker
            from apache_beam.runners.dask.dask_runner import DaskOptions

            dask = self._options.view_as(DaskOptions)
            dask.npartitions = dask.npartitions or (None if dask.partition_size else tasks)
        if self._engine.runner != EMBEDDED:
            return None
        from apache_beam.runners.portability.fn_api_runner import fn_runner

        return fn_runner.FnApiRunner()

    def _cancel(self) -> None:
        """Cancel the engine's job, once it is submitted, and print that."""
        if self._engine.runner == EMBEDDED:
            return  # its threads end with this process
        failure: list[BaseException] = []

        def attempt() -> None:
            try:
                self._submitted.wait()
                if self._flink:
                    self._flink.cancel(self.name, CANCEL_SECONDS)  # which a job server does not always do
                elif self._result:
                    self._result.cancel()
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=attempt, name="farspan-cancel", daemon=True)  # Beam's calls have no time limit
        thread.start()
        thread.join(CANCEL_SECONDS)
        if failure or thread.is_alive():
            why = str(failure[0]).partition("\n")[0] if failure else f"no answer after {CANCEL_SECONDS:.0f} s"
            tell_error(f"farspan: cannot cancel {self} ({why}); it may still run: cancel it there")
        else:
            note(f"farspan: cancelled {self}")

    def _last_error(self) -> str:
        try:
            return root_cause(self._flink.last_error(self.name)) if self._flink else ""
        except OSError:
            return ""

    def _explain(self, error: BaseException) -> Exception:
        """Make the error for a pipeline that its engine ended or lost."""
        if isinstance(error, FarspanError):
            return error
        for server in self._servers:
            if (status := server.status) is not None:
                return EngineStopped(f"Beam's job server ended with status {status}; it said:{server.words}")
        if isinstance(error, grpc.FutureTimeoutError):
            endpoint = self._options.view_as(pipeline_options.PortableOptions).job_endpoint
            return EngineStopped(f"--job_endpoint {endpoint}: no job service answers there")
        if isinstance(error, grpc.RpcError) and hasattr(error, "details"):
            return EngineStopped(f"the job service of {self} is gone ({error.details()}); {REPEAT}")
        # Beam's message has the innermost cause alone
        return RuntimeError(self._last_error() or root_cause(str(error)))


def root_cause(trace: str) -> str:
    """Return the innermost cause of a Java stack trace, with its Python traceback if any; other text unchanged.

    An outer cause that repeats the words of the inner one says more, e.g. which program cannot be run.
    """
    frame = re.compile(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more|Suppressed: |Caused by: )")
    causes = [
        "\n".join(line for line in cause.splitlines() if not frame.match(line)).strip()
        for cause in re.split(r"^Caused by: ", trace, flags=re.MULTILINE)
    ]
    cause = causes.pop()
    while len(causes) > 1 and (said := cause.partition(": ")[2]) and said in causes[-1]:
        cause = causes.pop()
    return cause


@contextmanager
def _quiet_beam() -> Iterator[None]:
    """Keep Beam from logging whole Java traces, and from printing that a job server's end breaks a connection.

    The error that is raised holds what they say.
    """

    def is_not_beams(record: logging.LogRecord) -> bool:
        return record.module != "portable_runner"

    def unless_beams(arguments: threading.ExceptHookArgs) -> None:
        if arguments.thread is None or arguments.thread.name != _READER:
            hook(arguments)

    hook, threading.excepthook = threading.excepthook, unless_beams
    logging.root.addFilter(is_not_beams)
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread.name == _READER:
                thread.join(5)
        logging.root.removeFilter(is_not_beams)
        threading.excepthook = hook
