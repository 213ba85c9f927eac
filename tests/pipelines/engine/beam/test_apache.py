"""Beam's import in a process of its own, which prints nothing and changes no logger, and jobs in notebooks."""

import subprocess
import sys
import types

import pytest
from rich.text import Text

from corpora.storage.manifest import Manifest, Receipt
from pipelines.engine.beam.apache import LoopbackGrpc, beam, serve_on_loopback, without_interactive_labels
from pipelines.engine.job import Job, Stage, Task
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job

CELL = """
from tests.pipelines.engine.beam.test_apache import small_job
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
    module = types.ModuleType("IPython")
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
