"""Beam's own job service as a process that hangs: the driver ends, says so, and its work is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from pipelines.engine.beam import engine as engine_module
from pipelines.engine.beam.pipeline import Watch
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.engine.jobs import shared_job

SIZES = {f"write-{index:02d}": 1 for index in range(6)}


@pytest.fixture
def service(tmp_path):
    """A job service of Beam's as a process, and the flags of its jobs, whose workers are in this process."""
    port_file = tmp_path / "port"
    module = "apache_beam.runners.portability.local_job_service_main"
    service = subprocess.Popen([sys.executable, "-m", module, "--port", "0", "--port_file", str(port_file)])
    try:
        end = time.monotonic() + 120
        while not (port_file.exists() and port_file.read_text()):
            assert time.monotonic() < end
            time.sleep(0.1)
        yield service, (f"--job_endpoint=localhost:{port_file.read_text()}", "--environment_type=LOOPBACK")
    finally:
        service.kill()
        service.wait()


@pytest.mark.slow  # with an engine that this process plays: test_engine.py
def test_a_job_service_that_hangs_can_be_left_and_loses_nothing(service, tmp_path, monkeypatch, capsys):
    """The service is stopped by a signal in the middle, and stays silent to every request."""
    process, flags = service
    output = tmp_path / "out"

    def stop(watch, reason: str) -> bool:
        if list(output.glob("_work/write-*.json")):
            process.send_signal(signal.SIGSTOP)
            raise KeyboardInterrupt
        return False

    slowly = {name: {"sleep": 0.5} for name in SIZES}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine_module, "CANCEL_SECONDS", 2.0)
        patch.setattr(Watch, "look", stop)
        run_job(shared_job(str(output), SIZES, slowly), Engine(runner="PortableRunner", beam_flags=flags))
    assert "farspan: cannot cancel job farspan-out-" in capsys.readouterr().err
    done = {path.stem for path in output.glob("_work/write-*.json")}
    assert done
    run_job(shared_job(str(output), SIZES), Engine(workers=1))
    assert "resuming: " in capsys.readouterr().err
    assert not (output / "_work").exists()
