"""Jobs on engines elsewhere, played by runners that hang, fail, or lose their workers; flags handed on to Beam."""

import os
import signal
import subprocess
import sys
import threading
import time
from unittest.mock import Mock

import pytest
from apache_beam.runners.runner import PipelineRunner

from corpora.errors import FarspanError
from corpora.storage.files import write_bytes
from corpora.storage.manifest import Receipt
from pipelines.engine.beam import engine as engine_module
from pipelines.engine.beam import pipeline
from pipelines.engine.beam.engine import require_shared, root_cause, workers_are_here
from pipelines.engine.beam.flags import check_flags
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
        return Mock(wait_until_finish=Mock(side_effect=RuntimeError(TRACE)))


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
    assert run_job(job(tmp_path, "fine"), engine(Hanging)).totals["documents"] == 0
    assert time.monotonic() - begun < 15  # the engine's 20
    assert "all tasks are done, and job farspan-" in capsys.readouterr().err
    assert not (tmp_path / "_work").exists()


def test_the_innermost_cause_is_shown(tmp_path):
    cause = 'java.io.IOException: Cannot run program "/no/worker": error=2, No such file or directory'
    with pytest.raises(FarspanError, match=f"^the runner stopped: {cause}; finished tasks are kept$"):
        run_job(job(tmp_path, "fine"), engine(Failing))
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
    with pytest.raises(FarspanError, match="is on this machine, and the workers of DataflowRunner are elsewhere; giv"):
        run_job(job(tmp_path / "new", "fine"), away)
    assert not (tmp_path / "new").exists()
    require_shared(away, "gs://bucket/corpus")
    require_shared(Engine(runner="DataflowRunner", shared_folders=True), str(tmp_path))


def test_a_job_service_that_does_not_answer_is_named(tmp_path):
    flags = ("--job_endpoint=localhost:9", "--job_server_timeout=1", "--environment_type=LOOPBACK")
    with pytest.raises(FarspanError, match="--job_endpoint localhost:9: no job service answers there"):
        run_job(job(tmp_path, "fine"), Engine(runner="PortableRunner", beam_flags=flags))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--direct_num_worker=2"], "did you mean '--direct_num_workers'"),
        (["--sequence-lenght", "5"], "did you mean '--sequence-length'"),
        (["--qqqqqq"], "--qqqqqq is a flag of neither farspan nor Beam; see --help"),
        (["stray.jsonl"], "unexpected argument 'stray.jsonl'; quote globs"),
    ],
)
def test_unknown_flags_are_refused(flags, message):
    with pytest.raises(FarspanError, match=message):
        check_flags(flags, ["--sequence-length"])


def test_beams_own_flags_pass():
    check_flags(["--direct_num_workers=2", "--job_name", "x", "--s3_endpoint_url=http://x"])


SERVED = """
    --number_of_execution_retries=3 --execution_retry_delay=1000 --max_bundle_size 100 --bundle_size=5
    --execution_mode_for_batch=BATCH_FORCED --attached_mode --faster_copy
""".split()


def test_flags_of_job_servers_pass_with_a_runner_that_has_one():
    check_flags(SERVED, runner="FlinkRunner")
    with pytest.raises(FarspanError, match="--attached_mode is a flag of Beam's job servers; the runner embedded has"):
        check_flags(["--attached_mode"])
    with pytest.raises(FarspanError, match="did you mean '--max_bundle_size'"):
        check_flags(["--max_bundle_sizes=5"], runner="FlinkRunner")


def test_flags_that_a_runner_declares_in_its_own_module_pass():
    runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
    code = (
        "from pipelines.engine.beam.flags import check_flags;"
        f"check_flags(['--dask_client_address=tcp://host:8786', '--dask_npartitions=4'], runner={runner!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr  # in a process of its own: an earlier import would declare them
