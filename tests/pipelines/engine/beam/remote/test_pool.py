"""The pool of workers: one that cannot start is reported with its reason, one that is stopped ends."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from apache_beam.portability.api import beam_fn_api_pb2, endpoints_pb2

from pipelines.engine.beam.remote import pool as module
from pipelines.engine.beam.remote.about import OPTION
from pipelines.engine.beam.remote.pool import Pool
from tests.pipelines.engine.beam.remote.services import Provision, served

OTHER = f'{{"output": "", "farspan": "9", "python": "{sys.version_info.major}.{sys.version_info.minor}"}}'


def request(worker: str, provision: str = ""):
    return beam_fn_api_pb2.StartWorkerRequest(
        worker_id=worker, provision_endpoint=endpoints_pb2.ApiServiceDescriptor(url=provision)
    )


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why():
    with served(Provision({OPTION: OTHER})) as provision:
        answer = Pool().StartWorker(request("1-1", provision), None)
    assert "and the driver farspan 9 under Python" in answer.error


def started(monkeypatch, script: str):
    """A pool whose workers run a shell script, which has the pipe to the pool as ``$READY``."""

    def start(request):
        said, ready = os.pipe()
        environment = {**os.environ, "READY": str(ready)}
        worker = subprocess.Popen(["bash", "-c", script], pass_fds=(ready,), env=environment)
        os.close(ready)
        return worker, said

    monkeypatch.setattr(module, "_start", start)
    return Pool()


def test_a_worker_that_ends_without_a_word(monkeypatch):
    answer = started(monkeypatch, "exit 3").StartWorker(request("1-1"), None)
    assert answer.error == "the worker ended at once, with status 3; its pool's output says why"


def test_workers_end_when_they_are_stopped(monkeypatch):
    pool = started(monkeypatch, 'eval "exec $READY>&-"; exec sleep 60')
    assert pool.StartWorker(request("1-1"), None).error == ""
    (worker,) = pool._running["1-1"]
    assert worker.poll() is None
    pool.StopWorker(request("1-1"), None)
    assert worker.poll() is not None


def test_two_engines_may_name_their_workers_alike(monkeypatch):
    pool = started(monkeypatch, 'eval "exec $READY>&-"; exec sleep 60')
    starts = [threading.Thread(target=pool.StartWorker, args=(request("1-1"), None)) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    workers = list(pool._running["1-1"])
    pool.StopWorker(request("1-1"), None)
    assert [worker.poll() for worker in workers] == [None, None]  # which one was meant is not said
    pool.close()
    assert None not in [worker.poll() for worker in workers]
