"""Jobs on engines elsewhere, played by runners that hang, fail, or lose their workers."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from apache_beam.runners.runner import PipelineRunner

from corpora.errors import FarspanError
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Receipt
from pipelines.engine.beam import engine as engine_module
from pipelines.engine.beam import pipeline
from pipelines.engine.beam.engine import require_shared, root_cause, workers_are_here
from pipelines.engine.beam.pipeline import Watch
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.interrupts import Terminated
from tests.pipelines.engine.test_run import TOTALS, job

TRACE = """\
java.lang.RuntimeException: The Runner failed
\tat org.apache.beam.Runner.run(Runner.java:1)
Caused by: java.lang.Exception: Job execution failed
\tat org.apache.flink.Job.run(Job.java:2)
\t... 3 more
Caused by: java.io.IOException: Cannot run program "/no/worker": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\t... 9 more
Caused by: java.io.IOException: error=2, No such file or directory
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)
\tSuppressed: java.lang.NullPointerException: Process for id does not exist: 1-14
\t\tat org.apache.beam.Process.stop(Process.java:3)
"""


class Result:
    """A job that runs until it is cancelled."""

    begun, cancelled = threading.Event(), threading.Event()

    def __init__(self):
        self.cancelled.clear()
        self.begun.set()

    def wait_until_finish(self):
        self.cancelled.wait(20)

    def cancel(self):
        self.cancelled.set()


class Hanging(PipelineRunner):
    def run_pipeline(self, pipeline, options):
        return Result()


class Failing(PipelineRunner):
    def run_pipeline(self, pipeline, options):
        result = Result()
        result.wait_until_finish = self.fail
        return result

    @staticmethod
    def fail():
        raise RuntimeError(TRACE)


def engine(runner: type, **options) -> Engine:
    return Engine(runner=f"{__name__}.{runner.__name__}", shared_folders=True, **options)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(engine_module, "_LOOK_SECONDS", (0.01, 0.01))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)])
def test_an_interrupted_job_is_cancelled(tmp_path, monkeypatch, capsys, number, error):
    def interrupt(self, reason):
        if Result.begun.wait(20):
            os.kill(os.getpid(), number)
            time.sleep(20)

    monkeypatch.setattr(Watch, "look", interrupt)
    with pytest.raises(error):
        run_job(job(tmp_path, "fine"), engine(Hanging))
    assert Result.cancelled.is_set()
    assert "farspan: cancelled job farspan-test-an-interrupted-job" in capsys.readouterr().err
    assert not (tmp_path / "_work" / "claims" / "lock.1").exists()  # so that remaining workers stop


def test_a_job_that_begins_late_is_not_cancelled(tmp_path, monkeypatch):
    """A line says that nothing has begun; then a task begins, and the job ends well."""

    class Late(Result):
        def wait_until_finish(self):
            noted.wait(20)
            write_bytes(str(tmp_path / "_work" / "fine.json"), Receipt("fine", totals=TOTALS).to_json())

    noted, notes = threading.Event(), []
    monkeypatch.setattr(pipeline, "note", lambda text: notes.append(text) or noted.set())
    monkeypatch.setattr(Hanging, "run_pipeline", lambda *_: Late())
    assert run_job(job(tmp_path, "fine"), engine(Hanging, worker_timeout=1)).totals == TOTALS
    (text,) = notes
    assert "s: the engine gives no reason" in text.partition("no task has begun for ")[2]
    assert not Result.cancelled.is_set()


def test_an_engine_that_hangs_after_the_last_task_is_not_waited_for(tmp_path, monkeypatch, capsys):
    class Done(Result):
        def wait_until_finish(self):
            write_bytes(str(tmp_path / "_work" / "fine.json"), Receipt("fine", totals=TOTALS).to_json())
            super().wait_until_finish()

    monkeypatch.setattr(Hanging, "run_pipeline", lambda *_: Done())
    monkeypatch.setattr(pipeline, "_END_SECONDS", 0.05)
    begun = time.monotonic()
    manifest = run_job(job(tmp_path, "fine"), engine(Hanging))
    assert manifest.totals["documents"] == 0
    assert time.monotonic() - begun < 15  # the engine's 20
    assert "all tasks are done, and job farspan-" in capsys.readouterr().err
    assert not (tmp_path / "_work").exists()


def test_the_innermost_cause_is_shown(tmp_path):
    with pytest.raises(FarspanError) as caught:
        run_job(job(tmp_path, "fine"), engine(Failing))
    assert str(caught.value) == (
        'the runner stopped: java.io.IOException: Cannot run program "/no/worker": error=2, No such file or directory; '
        "finished tasks are kept"
    )
    assert root_cause("no trace\n") == "no trace"
    assert root_cause("a: b\n\tat x.Y(Y.java:1)\nCaused by: c: d\nCaused by: e: f\n") == "e: f"


@pytest.mark.parametrize(
    ("runner", "flags", "here"),
    [
        ("FlinkRunner", ["--flink_master=flink:8081", "--environment_type=PROCESS"], False),
        ("FlinkRunner", ["--flink_master=flink:8081"], False),
        ("FlinkRunner", ["--flink_master=[local]"], True),
        ("FlinkRunner", ["--flink_master=[local]", "--environment_type=DOCKER"], False),
        ("SparkRunner", [], True),
        ("SparkRunner", ["--spark_master_url=spark://host:7077"], False),
        ("PortableRunner", ["--job_endpoint=x:1", "--environment_type=LOOPBACK"], True),
        ("PortableRunner", ["--job_endpoint=x:1", "--environment_type=EXTERNAL"], False),
        ("DataflowRunner", [], False),
        ("apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner", [], True),
    ],
)
def test_where_workers_are(runner, flags, here):
    assert workers_are_here(Engine(runner=runner, beam_flags=tuple(flags))) is here


def test_a_local_output_is_refused_for_workers_elsewhere(tmp_path):
    away = Engine(runner="DataflowRunner")
    with pytest.raises(
        FarspanError, match=r"is on this machine, and the workers of DataflowRunner are elsewhere; give"
    ):
        run_job(job(tmp_path / "new", "fine"), away)
    assert not (tmp_path / "new").exists()
    require_shared(away, "gs://bucket/corpus")
    require_shared(Engine(runner="DataflowRunner", shared_folders=True), str(tmp_path))


def test_a_job_service_that_does_not_answer_is_named(tmp_path):
    flags = ("--job_endpoint=localhost:9", "--job_server_timeout=1", "--environment_type=LOOPBACK")
    with pytest.raises(FarspanError, match="--job_endpoint localhost:9: no job service answers there"):
        run_job(job(tmp_path, "fine"), Engine(runner="PortableRunner", beam_flags=flags))
