"""Beam's import, its job servers and its job service as processes; Flink's REST service."""

import json
import os
import signal
import subprocess
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from rich.text import Text

from corpora.errors import FarspanError
from corpora.storage.manifest import Manifest, Receipt
from pipelines.engine.beam import engine as engine_module
from pipelines.engine.beam.apache import LoopbackGrpc, beam, serve_on_loopback, without_interactive_labels
from pipelines.engine.beam.pipeline import Watch
from pipelines.engine.beam.servers import Flink, JobServer, _popen, address_of, own_job_servers
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.engine.jobs import job_service, shared_job

from apache_beam.runners.portability import job_server  # isort: skip (after Beam's quiet import)

CELL = """
from tests.pipelines.engine.beam.test_servers import small_job
from pipelines.engine.run import run_job
from pipelines.engine.options import Engine
print(dict(run_job(small_job({output!r}), Engine()).totals))
"""


def test_the_import_is_quiet():
    program = (
        "from logging import root; import pipelines.engine.beam.apache; print(root.handlers, root.manager.disable)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] 0\n", "")


def test_without_beam_one_line_says_how_to_get_it():
    program = "import sys; sys.modules['apache_beam'] = None; import pipelines.engine.beam.apache"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    message = "FarspanError: running a job on Beam needs apache_beam: pip install 'farspan[pipelines]'\n"
    assert done.stderr.endswith(message)


def test_servers_of_beam_listen_on_this_machine_alone():
    serve_on_loopback()
    from apache_beam.runners.worker import worker_pool_main

    assert isinstance(worker_pool_main.grpc, LoopbackGrpc)  # a pool of --environment_type=LOOPBACK
    address, server = worker_pool_main.BeamFnExternalWorkerPoolServicer.start()
    server.stop(0)
    assert address.startswith("localhost:")


def work(task, report):
    report(1)
    return Receipt(task.name, totals={"documents": 1, "tokens": 2})


def small_job(output: str) -> Job:
    head = Manifest(
        "farspan.neighbours", {"split": "train"}, 0, 64, {"fingerprint": "", "vocab_size": 1, "owned_tokens": {}}
    )
    return Job(output, head, [Stage("find", [Task("only", {}, 1)], work, "tasks")], lambda folder: None, 0)


@pytest.fixture
def ipython(monkeypatch):
    """A process that looks like IPython to Beam."""
    module: Any = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(config={}, execution_count=1)
    monkeypatch.setitem(sys.modules, "IPython", module)


def test_a_job_in_ipython_loads_no_interactive_beam(ipython, tmp_path):
    manifest = run_job(small_job(str(tmp_path / "found")), Engine(engine="beam"))
    assert manifest.totals == {"documents": 1, "tokens": 2}
    assert "apache_beam.runners.interactive.interactive_environment" not in sys.modules


def test_beam_is_left_as_it_was():
    names = ("is_in_ipython", "alter_label_if_ipython")
    before = [getattr(beam.pipeline, name) for name in names]
    with pytest.raises(KeyError), without_interactive_labels():
        assert not beam.pipeline.is_in_ipython()
        raise KeyError
    assert [getattr(beam.pipeline, name) for name in names] == before


def test_a_job_in_a_kernel_draws_bars(tmp_path, monkeypatch):
    pytest.importorskip("ipykernel")
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL.format(output=str(tmp_path / "found")))])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = notebook.cells[0].outputs
    assert [output.output_type for output in outputs] == ["display_data", "stream"]
    assert "100% 1/1 tasks" in Text.from_ansi(outputs[0].data["text/plain"]).plain
    assert outputs[1].text == "{'documents': 1, 'tokens': 2}\n"


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
    server._process, server._watch = _popen(list(beams.command))
    server.stop()
    assert server.status == -signal.SIGKILL
    assert server._watch.returncode == -signal.SIGKILL


SIZES = {f"write-{index:02d}": 1 for index in range(6)}


@pytest.mark.slow  # with an engine that this process plays: test_engine.py
def test_a_job_service_that_hangs_can_be_left_and_loses_nothing(tmp_path, monkeypatch, capsys):
    """The service is stopped by a signal in the middle, and stays silent to every request."""
    output = tmp_path / "out"

    def stop(watch, reason: str) -> bool:
        if list(output.glob("_work/write-*.json")):
            process.send_signal(signal.SIGSTOP)
            raise KeyboardInterrupt
        return False

    slowly = {name: {"sleep": 0.5} for name in SIZES}
    with job_service(tmp_path) as (process, flags), monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine_module, "CANCEL_SECONDS", 2.0)
        patch.setattr(Watch, "look", stop)
        run_job(shared_job(str(output), SIZES, slowly), Engine(runner="PortableRunner", beam_flags=flags))
    assert "farspan: cannot cancel job farspan-out-" in capsys.readouterr().err
    assert {path.stem for path in output.glob("_work/write-*.json")}
    run_job(shared_job(str(output), SIZES), Engine(workers=1))
    assert "resuming: " in capsys.readouterr().err
    assert not (output / "_work").exists()


JOBS = [
    {"jid": "1", "name": "farspan-a", "state": "FAILED", "start-time": 5},
    {"jid": "2", "name": "farspan-a", "state": "RUNNING", "start-time": 9},
    {"jid": "3", "name": "another", "state": "RUNNING", "start-time": 10},
]


@pytest.fixture
def cluster():
    """A cluster with ``JOBS``; ``patched`` lists what it was asked to change."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/jobs/overview":
                ended = [] if server.stubborn else [path.split("/")[2].partition("?")[0] for path in server.patched]
                jobs = [{**job, "state": "CANCELED"} if job["jid"] in ended else job for job in JOBS]
                self.answer({"jobs": jobs})
            elif self.path == "/jobs/2/exceptions":
                self.answer({"root-exception": None, "exceptionHistory": {"entries": [{"stacktrace": "Caused by: x"}]}})
            else:
                self.answer("nothing")

        def do_PATCH(self):
            server.patched.append(self.path)
            self.answer({})

        def answer(self, value):
            self.send_response(202)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_):
            pass

    server: Any = HTTPServer(("localhost", 0), Handler)
    server.patched, server.stubborn = [], False
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()


def test_jobs_are_found_by_their_name(cluster):
    flink = Flink(f"localhost:{cluster.server_port}")
    assert flink.last_error("farspan-a") == "Caused by: x"
    assert flink.last_error("farspan-b") == ""
    flink.cancel("farspan-a", 5)
    assert cluster.patched == ["/jobs/2?mode=cancel"]
    flink.cancel("farspan-b", 5)
    cluster.stubborn = True
    with pytest.raises(OSError, match="Flink does not end it"):
        flink.cancel("another", 0)


def test_a_cluster_that_is_not_there():
    with pytest.raises(OSError):
        Flink("http://localhost:9").last_error("farspan-a")


def test_the_address_of_a_master():
    assert address_of("flink:8081") == "http://flink:8081"
    assert address_of("https://flink/") == "https://flink/"
    assert [address_of(inside) for inside in ("[auto]", "[local]", "", None)] == [""] * 4
