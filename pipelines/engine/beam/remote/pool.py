"""A pool that starts and ends workers at the request of an engine on the same machine."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from pipelines.engine.beam.apache import beam  # noqa: F401 (quietly, before other parts of it)

from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc  # isort: skip

START_SECONDS = 120.0  # timeout for a worker's report that it runs, or cannot start
_STOP_SECONDS = 10.0  # between SIGTERM and SIGKILL


class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """Starts ``pipelines.harness`` for each worker, and reports one that cannot start.

    Beam's own pool does not report a worker that ends at once, so the engine waits for it forever, and it passes no
    options on. Two TaskManagers of one machine may share this pool, though both call their first worker ``1-1``.
    """

    def __init__(self) -> None:
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._lock = threading.Lock()

    def StartWorker(self, request: Any, context: Any) -> Any:
        """Start a worker, and answer when it runs."""
        worker, said = _start(request)
        with self._lock:
            self._running.setdefault(request.worker_id, []).append(worker)
        return beam_fn_api_pb2.StartWorkerResponse(error=_reason(worker, said))

    def StopWorker(self, request: Any, context: Any) -> Any:
        """End a worker; of several with one name each ends by itself, with its engine's connection."""
        with self._lock:
            workers = [worker for worker in self._running.pop(request.worker_id, ()) if worker.poll() is None]
            if len(workers) > 1:
                self._running[request.worker_id] = workers
        if len(workers) == 1:
            _end(workers[0])
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """End all workers."""
        for workers in self._running.values():
            for worker in workers:
                _end(worker)


def serve(port: int) -> None:
    """Serve on ``localhost`` until SIGINT or SIGTERM: anyone who reaches a pool can run code in it."""
    pool = Pool()
    server = grpc.server(ThreadPoolExecutor(64))
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    bound = server.add_insecure_port(f"localhost:{port}")
    server.start()
    print(f"farspan-worker: workers for --environment_type=EXTERNAL --environment_config=localhost:{bound}", flush=True)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(0)
    pool.close()


def _start(request: Any) -> tuple[subprocess.Popen[bytes], int]:
    """Start a worker; the pipe ends when it runs, and holds what it says if it cannot."""
    said, ready = os.pipe()
    command = [sys.executable, "-P", "-m", "pipelines.harness", f"--id={request.worker_id}"]
    services = ("logging_endpoint", "artifact_endpoint", "provision_endpoint", "control_endpoint")
    command += (f"--{name}={getattr(request, name).url}" for name in services)
    search = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    worker = subprocess.Popen(
        [*command, f"--ready_descriptor={ready}"],
        stdin=subprocess.DEVNULL,
        pass_fds=(ready,),
        env={**os.environ, "PYTHONPATH": search},
    )
    os.close(ready)
    return worker, said


def _reason(worker: subprocess.Popen[bytes], said: int) -> str:
    """The reason for which a worker cannot start; empty if it runs, or has not said so yet."""
    try:
        ready, _, _ = select.select([said], [], [], START_SECONDS)
        text = os.read(said, 1 << 16).decode(errors="replace") if ready else ""
    finally:
        os.close(said)
    if text:
        return text
    for _ in range(5 if ready else 0):  # the pipe also ends when the process does
        if worker.poll() is not None:
            return f"the worker ended at once, with status {worker.returncode}; its pool's output says why"
        time.sleep(0.1)
    return ""


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.terminate()
    try:
        worker.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
