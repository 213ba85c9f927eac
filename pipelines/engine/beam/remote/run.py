"""Running a pipeline on a remote engine: submission, monitoring, and an end that leaves nothing running."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc

from corpora.errors import FarspanError
from corpora.reporting import note
from corpora.storage.files import is_local
from pipelines.engine.beam.apache import PipelineOptions, beam
from pipelines.engine.beam.remote.about import OPTION, Driver
from pipelines.engine.beam.remote.flink import Flink, address_of
from pipelines.engine.beam.remote.job_server import JobServer, own_job_servers
from pipelines.engine.beam.remote.jobs import cancel, is_running
from pipelines.engine.beam.remote.signs import SignOfLife
from pipelines.engine.beam.remote.submission import Submission, forget
from pipelines.engine.beam.remote.watch import Silence, Watch, silence_limits
from pipelines.engine.beam.runner import EngineStopped, WorkerDied
from pipelines.engine.job import REPEAT, Job
from pipelines.engine.options import Engine
from pipelines.engine.progress import ProgressBars

from apache_beam.options import pipeline_options  # isort: skip
from apache_beam.portability.api import beam_job_api_pb2  # isort: skip

_HERE = ("LOOPBACK", "beam:env:embedded_python:v1", "beam:env:embedded_python_grpc:v1")
_LOCAL_RUNNERS = ("DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner", "FnApiRunner", "PrismRunner")
_READER = "wait_until_finish_read"  # Beam's thread that reads an engine's messages
_NO_PIP_FREEZE = "disable_logging_submission_environment"  # seconds for a list that no worker reads
_LOOK_SECONDS = (1.0, 60.0)  # between two looks at the folder, at least and at most
_END_SECONDS = 30.0  # for an engine to say that a job has ended whose tasks all have receipts


class _DriverOptions(PipelineOptions):
    """Lets ``Driver.flag`` travel among Beam's options."""

    @classmethod
    def _add_argparse_args(cls, parser: Any) -> None:
        parser.add_argument(f"--{OPTION}")


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
    """Refuse a folder of this machine for workers of others.

    Raises:
        FarspanError: naming the cures.
    """
    if is_local(output) and not engine.shared_folders and not workers_are_here(engine):
        raise FarspanError(
            f"--output {output}: is on this machine, and the workers of {engine.runner} are elsewhere; give a folder "
            "on an object store, or --shared-folders if all workers see this path and the inputs', as with NFS"
        )


def run_elsewhere(build: Callable[[Any, SignOfLife], None], engine: Engine, job: Job, bars: ProgressBars) -> None:
    """Run a pipeline on the engine that ``engine.runner`` names, to its end.

    Args:
        build: adds the transforms to an empty ``beam.Pipeline``; their progress goes to the second argument.
        bars: show the job's progress.

    Raises:
        WorkerDied: the workers have been silent for too long.
        FarspanError: a task failed, no worker started, or the engine stopped.
        KeyboardInterrupt: after the engine's job was cancelled.
        Exception: what the pipeline raised.
    """
    from pipelines.engine.beam.loopback import serve_on_loopback
    from pipelines.engine.beam.notebook import without_interactive_labels

    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # a failed task is reported once, by its own message
    serve_on_loopback()
    options, submission = _prepare(engine, job.output)
    submission.write(job.output)  # before any worker starts
    with _quiet_beam(), own_job_servers() as servers:
        try:
            with without_interactive_labels():
                pipeline = beam.Pipeline(options=options)
                build(pipeline, SignOfLife(job.output, submission.attempt))
                result = pipeline.run()
        except grpc.FutureTimeoutError:
            forget(job.output)
            raise EngineStopped(f"--job_endpoint {submission.endpoint}: no job service answers there") from None
        except BaseException:
            cancel_unseen(job.output, submission)
            raise
        submission = replace(submission, job=_id_of(result))
        submission.write(job.output)
        watch = Watch(job, submission.attempt, _silence(engine, result), bars)
        _follow(result, watch, submission, job.output, servers)
    forget(job.output)


def cancel_unseen(output: str, submission: Submission) -> None:
    """End a job whose submission was interrupted, if it reached the engine."""
    if submission.flink and is_running(submission):
        cancel(output, submission)
    else:
        forget(output)


def _prepare(engine: Engine, output: str) -> tuple[PipelineOptions, Submission]:
    """Beam's options, and the record to write."""
    options = PipelineOptions([f"--runner={engine.runner}", *engine.beam_flags, Driver(output).flag()])
    options.view_as(pipeline_options.DebugOptions).add_experiment(_NO_PIP_FREEZE)
    cloud = options.view_as(pipeline_options.GoogleCloudOptions)
    portable = options.view_as(pipeline_options.PortableOptions)
    flink = options.view_as(pipeline_options.FlinkRunnerOptions).flink_master
    is_flink = engine.runner.rpartition(".")[2] == "FlinkRunner"
    endpoint = portable.job_endpoint or ""
    submission = Submission(
        runner=engine.runner,
        name="",
        endpoint="" if endpoint == "embed" else endpoint,
        flink=address_of(flink) if is_flink else "",
    )
    folder = re.sub(r"[^a-z0-9]+", "-", os.path.basename(output.rstrip("/")).lower()).strip("-") or "job"
    cloud.job_name = cloud.job_name or f"farspan-{folder}-{submission.attempt[:8]}"
    return options, replace(submission, name=cloud.job_name)


def _silence(engine: Engine, result: Any) -> Silence:
    """Seconds that workers may be silent; Beam's own job service gives a dead worker's task to no other."""
    restarts = True
    if service := getattr(result, "_job_service", None):
        described = service.DescribePipelineOptions(beam_job_api_pb2.DescribePipelineOptionsRequest())
        restarts = bool(described.options)  # Java's have some
    return Silence(*silence_limits(engine.runner, engine.worker_timeout, restarts))


def _follow(result: Any, watch: Watch, submission: Submission, output: str, servers: list[JobServer]) -> None:
    """Wait for the end of a job, and end it if it hangs or this process is interrupted.

    A job whose tasks are all done no longer needs its engine, so an engine that hangs then is not waited for.
    """
    ended, failure = threading.Event(), []

    def wait() -> None:
        try:
            result.wait_until_finish()
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    threading.Thread(target=wait, name="farspan-pipeline", daemon=True).start()
    least, most = _LOOK_SECONDS
    pause = least
    try:
        while not ended.wait(pause):
            pause = min(max(20 * watch.look(), least), most)
            if watch.all_done and watch.silence.seconds > _END_SECONDS:
                note(f"all tasks are done, and {submission} does not end: going on without it")
                break
            if watch.silence.too_long:
                raise _silent(watch, submission, output)
        watch.look()
    except BaseException:
        cancel(output, submission, result.cancel)
        raise
    if not ended.is_set() and is_running(submission):
        cancel(output, submission, result.cancel)
    if failure:
        raise _engine_error(failure[0], submission, output, servers) from failure[0]


def _silent(watch: Watch, submission: Submission, output: str) -> FarspanError:
    seconds = f"{watch.silence.seconds:.0f} s"
    if watch.silence.begun:
        return WorkerDied(
            "a worker process was killed or crashed (out of memory is the usual reason), or the engine hangs: no "
            f"worker of {submission} has given a sign of life for {seconds}; {REPEAT}"
        )
    why = watch.why_silent()
    if not why and submission.flink:
        why = _last_error(submission)
    return EngineStopped(
        f"no worker of {submission} has started within {seconds}: {why or 'the engine gives no reason'}. See the "
        f"engine's and the workers' logs: do the workers have farspan, and can they write to {output}? "
        "--worker-timeout allows more time"
    )


def _last_error(submission: Submission) -> str:
    try:
        return root_cause(Flink(submission.flink).last_error(submission.name))
    except OSError:
        return ""


def _engine_error(error: BaseException, submission: Submission, output: str, servers: list[JobServer]) -> Exception:
    """Make the error for a job that its engine ended or lost."""
    for server in servers:
        if (status := server.status) is not None:
            cancel_unseen(output, submission)
            return EngineStopped(f"Beam's job server ended with status {status}; it said:{server.words}")
    if isinstance(error, grpc.RpcError) and hasattr(error, "details"):  # the record stays: the job may still run
        return EngineStopped(f"the job service of {submission} is gone ({error.details()}); {REPEAT}")
    forget(output)
    said = _last_error(submission) if submission.flink else ""  # Beam's message has the innermost cause alone
    return RuntimeError(said or root_cause(str(error)))


def root_cause(trace: str) -> str:
    """Return the innermost cause of a Java stack trace, with its Python traceback if any; other text unchanged.

    An outer cause that repeats the words of the inner one says more, e.g. which program cannot be run.
    """
    causes = [_without_frames(cause) for cause in re.split(r"^Caused by: ", trace, flags=re.MULTILINE)]
    found = causes.pop()
    while len(causes) > 1 and (said := found.partition(": ")[2]) and said in causes[-1]:
        found = causes.pop()
    return found


def _without_frames(cause: str) -> str:
    frame = re.compile(r"\s+(at [\w.$/<>]+\(|\.\.\. \d+ more|Suppressed: |Caused by: )")
    lines = [line for line in cause.splitlines() if not frame.match(line)]
    return "\n".join(lines).strip()


def _id_of(result: Any) -> str:
    """The engine's id of a job, where its runner tells one."""
    said = getattr(result, "_job_id", None)
    if said is None and callable(getattr(result, "job_id", None)):
        said = result.job_id()
    return str(said or "")


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
