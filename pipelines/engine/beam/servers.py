"""The servers beside a pipeline: Beam's Java job servers, and Flink's REST service.

Job servers are child processes of the driver, which keeps their output and ends them: Beam's wrapper stops the server
at Ctrl-C, before it could cancel the job, and loses its output. A job server does not always cancel what it has handed
to a cluster; Flink itself does.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from corpora.errors import FarspanError
from pipelines.engine.beam.apache import beam  # noqa: F401 (quietly, before other parts of it)

from apache_beam.portability.api import beam_job_api_pb2_grpc  # isort: skip
from apache_beam.runners.portability import job_server  # isort: skip

START_SECONDS = 120.0
_LINES = 20  # lines of a server's output that are kept
_WATCH = 'read nothing; kill -9 "$1"'  # once the pipe closes because the driver has ended, for any reason
_ENDED = ("FINISHED", "FAILED", "CANCELED")  # states of Flink's jobs
_FLINK_SECONDS = 10


class EngineStopped(FarspanError):
    """The engine ended the job, and not a task; its message is complete."""


class JobServer(job_server.JobServer):
    """Starts the command of one of Beam's job servers, outside the terminal's group of processes."""

    def __init__(self, beams: Any) -> None:
        self._beams = beams
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._words: deque[str] = deque(maxlen=_LINES)
        self._stub: Any = None

    def start(self) -> Any:
        """Start the server, unless it runs, and return a stub of its service."""
        if self._process is None:
            self._beams._local_temp_root = tempfile.mkdtemp(prefix="farspan-job-server-")
            atexit.register(self.stop)
            command, endpoint = self._beams.subprocess_cmd_and_endpoint()
            self._process, self._watch = _popen([str(word) for word in command])
            reader = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            reader.start()
            channel = grpc.insecure_channel(endpoint, options=[("grpc.max_send_message_length", -1)])
            self._await(channel, reader)
            self._stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        return self._stub

    def stop(self) -> None:
        """End the server."""
        atexit.unregister(self.stop)
        for process in filter(None, (self._watch, self._process)):
            process.kill()
            process.wait()
        shutil.rmtree(self._beams._local_temp_root or "", ignore_errors=True)

    @property
    def status(self) -> int | None:
        """Exit status of a server that ended by itself; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def words(self) -> str:
        """Return the last lines that the server printed, indented."""
        return "".join(f"\n  {line}" for line in self._words)

    def _await(self, channel: grpc.Channel, reader: threading.Thread) -> None:
        assert self._process is not None
        ready, last = grpc.channel_ready_future(channel), time.monotonic() + START_SECONDS
        while time.monotonic() < last:
            try:
                ready.result(timeout=0.2)
                return
            except grpc.FutureTimeoutError:
                if self._process.poll() is not None:
                    reader.join(5)  # until its last output is read
                    raise EngineStopped(
                        f"Beam's job server ended at once, with status {self._process.returncode}; it said:{self.words}"
                    ) from None
        raise EngineStopped(f"Beam's job server does not answer after {START_SECONDS:.0f} s; it said:{self.words}")

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._words.append(line.decode(errors="replace").rstrip())


@contextmanager
def own_job_servers() -> Iterator[list[JobServer]]:
    """Have Beam's runners start ``JobServer``, and end those that they started."""
    started: list[JobServer] = []

    def wrap(beams: Any) -> JobServer:
        started.append(JobServer(beams))
        return started[-1]

    before = job_server.StopOnExitJobServer
    vars(job_server)["StopOnExitJobServer"] = wrap
    try:
        yield started
    finally:
        vars(job_server)["StopOnExitJobServer"] = before
        for server in started:
            server.stop()


def _popen(command: list[str]) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """Start a process that Ctrl-C does not reach, and one that kills it when this one has ended."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    nothing = subprocess.DEVNULL
    watch = ["sh", "-c", _WATCH, "sh", str(process.pid)]
    return process, subprocess.Popen(
        watch, stdin=subprocess.PIPE, stdout=nothing, stderr=nothing, start_new_session=True
    )


class Flink:
    """A Flink cluster by its address, ``[http://]host:port``."""

    def __init__(self, address: str) -> None:
        self.address = address if "://" in address else f"http://{address}"

    def cancel(self, name: str, seconds: float) -> None:
        """End every running job with a name."""
        last = time.monotonic() + seconds
        while running := [job for job in self._jobs(name) if job["state"] not in _ENDED]:
            for job in running:
                self._ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH")
            if time.monotonic() > last:
                raise TimeoutError("Flink does not end it")
            time.sleep(0.5)

    def last_error(self, name: str) -> str:
        """The Java trace of what stopped the newest job with a name, or its last attempt; empty if there is none."""
        jobs = self._jobs(name)
        if not jobs:
            return ""
        said = self._ask(f"/jobs/{max(jobs, key=lambda job: job['start-time'])['jid']}/exceptions")
        history = (said.get("exceptionHistory") or {}).get("entries") or [{}]
        return str(said.get("root-exception") or history[0].get("stacktrace") or "")

    def _jobs(self, name: str) -> list[dict[str, Any]]:
        return [job for job in self._ask("/jobs/overview")["jobs"] if job["name"] == name]

    def _ask(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(self.address.rstrip("/") + path, method=method)
        with urllib.request.urlopen(request, timeout=_FLINK_SECONDS) as answer:
            try:
                return json.loads(answer.read() or b"{}")
            except ValueError as error:
                raise OSError(f"{self.address}: its answer is not Flink's") from error


def address_of(master: str | None) -> str:
    """Address of the REST service of ``--flink_master``; empty for a cluster inside the job server."""
    return "" if not master or master.strip() in ("[auto]", "[local]") else Flink(master.strip()).address
