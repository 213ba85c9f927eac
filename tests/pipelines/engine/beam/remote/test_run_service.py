"""Beam's own job service as a process that hangs: the driver ends, says so, and its work is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from pipelines.engine.beam.remote import jobs
from pipelines.engine.beam.remote.submission import read_submission
from pipelines.engine.beam.runner import WorkerDied
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.engine.cooperative.jobs import shared_job

SIZES = {f"write-{index:02d}": 1 for index in range(6)}


@pytest.mark.slow  # with services that this process plays: test_run.py
def test_a_job_service_that_hangs_ends_the_driver_and_loses_nothing(tmp_path, monkeypatch, capsys):
    """The service is stopped by a signal in the middle, and stays silent to every request."""
    port_file, output = tmp_path / "port", tmp_path / "out"
    module = "apache_beam.runners.portability.local_job_service_main"
    service = subprocess.Popen([sys.executable, "-m", module, "--port", "0", "--port_file", str(port_file)])
    try:
        end = time.monotonic() + 120
        while not (port_file.exists() and port_file.read_text()):
            assert time.monotonic() < end
            time.sleep(0.1)

        def stop() -> None:
            while not list(output.glob("_work/write-*.json")):
                time.sleep(0.01)
            service.send_signal(signal.SIGSTOP)

        monkeypatch.setattr(jobs, "CANCEL_SECONDS", 2.0)
        threading.Thread(target=stop, daemon=True).start()
        flags = (f"--job_endpoint=localhost:{port_file.read_text()}", "--environment_type=LOOPBACK")
        engine = Engine(runner="PortableRunner", worker_timeout=8, beam_flags=flags)
        slowly = {name: {"sleep": 0.5} for name in SIZES}
        with pytest.raises(WorkerDied, match=r"or the engine hangs: no worker of job farspan-out-"):
            run_job(shared_job(str(output), SIZES, slowly), engine)
        assert "farspan: cannot cancel job farspan-out-" in capsys.readouterr().err
        assert read_submission(str(output)) is not None
    finally:
        service.kill()
        service.wait()
    done = {path.stem for path in output.glob("_work/write-*.json")}
    assert done
    run_job(shared_job(str(output), SIZES), Engine(workers=1))  # nobody can be asked, and no worker lives
    assert f"resuming: {len(done)} of 9 tasks are done" in capsys.readouterr().err
    assert not (output / "_work").exists()
