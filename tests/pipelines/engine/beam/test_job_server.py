"""Job servers as processes: what they say when they fail, and their end."""

from __future__ import annotations

import os
import signal

import pytest
from apache_beam.runners.portability import job_server

from corpora.errors import FarspanError
from pipelines.engine.beam.job_server import JobServer, _popen, own_job_servers


class Beams:
    """One of Beam's job servers, reduced to its command."""

    def __init__(self, *command: str) -> None:
        self.command = command
        self._local_temp_root = ""

    def subprocess_cmd_and_endpoint(self):
        return list(self.command), "localhost:9"


def test_a_server_that_does_not_start_is_quoted():
    broken = Beams("sh", "-c", "echo Error: Invalid or corrupt jarfile x.jar >&2; exit 7")
    with own_job_servers() as servers, pytest.raises(FarspanError) as caught:
        job_server.StopOnExitJobServer(broken).start()
    assert str(caught.value).splitlines() == [
        "Beam's job server ended at once, with status 7; it said:",
        "  Error: Invalid or corrupt jarfile x.jar",
    ]
    assert servers[0].status == 7
    assert not os.path.exists(broken._local_temp_root)
    assert job_server.StopOnExitJobServer.__module__ == job_server.__name__


def test_a_server_ends_with_its_driver_however_that_ends():
    """The system closes the driver's end of the pipe, also where nobody asks for the driver's exit status."""
    server, watch = _popen(["sleep", "60"])
    for process in (server, watch):
        assert os.getsid(process.pid) != os.getsid(0)  # Ctrl-C in the driver's terminal does not reach it
    assert server.poll() is None
    watch.stdin.close()
    assert server.wait(20) == -signal.SIGKILL
    watch.wait(20)


def test_a_server_that_is_stopped_leaves_no_process():
    beams = Beams("sleep", "60")
    server = JobServer(beams)
    server._process, server._watch = _popen(beams.command)
    server.stop()
    assert server.status == -signal.SIGKILL
    assert server._watch.returncode == -signal.SIGKILL
