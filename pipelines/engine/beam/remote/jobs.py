"""State and cancellation of jobs on an engine by their record, also of jobs of other drivers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import grpc

from corpora.reporting import note, tell_error
from pipelines.engine.beam.apache import beam  # noqa: F401 (quietly, before other parts of it)
from pipelines.engine.beam.remote.flink import ENDED, Flink
from pipelines.engine.beam.remote.submission import Submission, forget

from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc  # isort: skip
from apache_beam.runners.portability.portable_runner import TERMINAL_STATES  # isort: skip

_SECONDS = 10.0  # timeout for an answer of a job service
CANCEL_SECONDS = 60.0


def is_running(submission: Submission) -> bool | None:
    """Ask the engine of a job for its state; None if it cannot be reached."""
    if submission.flink:
        try:
            return Flink(submission.flink).state(submission.name) not in (*ENDED, "")
        except OSError:
            return None
    if not (submission.endpoint and submission.job):
        return None
    request = beam_job_api_pb2.GetJobStateRequest(job_id=submission.job)
    with grpc.insecure_channel(submission.endpoint) as channel:
        try:
            answer = beam_job_api_pb2_grpc.JobServiceStub(channel).GetState(request, timeout=_SECONDS)
        except grpc.RpcError:  # no service there, or another one, which does not know the job
            return None
    return answer.state not in TERMINAL_STATES


def cancel(output: str, submission: Submission, directly: Callable[[], object] | None = None) -> None:
    """Cancel a job and print that; its record stays if it may still run.

    Args:
        directly: cancels it in the process that submitted it.
    """
    failure: list[BaseException] = []

    def attempt() -> None:
        try:
            _cancel(submission, directly)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=attempt, name="farspan-cancel", daemon=True)  # Beam's calls have no time limit
    thread.start()
    thread.join(CANCEL_SECONDS)
    if failure or thread.is_alive():
        why = str(failure[0]).partition("\n")[0] if failure else f"no answer after {CANCEL_SECONDS:.0f} s"
        tell_error(
            f"farspan: cannot cancel {submission} ({why}); it may still run: cancel it there, or give the same command "
            "again, which asks for its state"
        )
        return
    forget(output)
    note(f"farspan: cancelled {submission}")


def _cancel(submission: Submission, directly: Callable[[], object] | None) -> None:
    if submission.flink:
        cluster, last = Flink(submission.flink), time.monotonic() + CANCEL_SECONDS
        while cluster.state(submission.name) not in (*ENDED, ""):
            cluster.cancel(submission.name)
            time.sleep(0.5)
            if time.monotonic() > last:
                raise TimeoutError("Flink does not end it")
    elif directly:
        directly()
    elif submission.endpoint and submission.job:
        request = beam_job_api_pb2.CancelJobRequest(job_id=submission.job)
        with grpc.insecure_channel(submission.endpoint) as channel:
            beam_job_api_pb2_grpc.JobServiceStub(channel).Cancel(request, timeout=_SECONDS)
    else:
        raise RuntimeError(f"{submission.runner} cannot be reached from here")
