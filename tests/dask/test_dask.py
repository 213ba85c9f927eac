"""Jobs on a real Dask cluster of a scheduler and two worker processes: the bytes of one process, and kills.

Run by ``pytest -m dask``.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.verify import verify
from tests.flink.test_flink import chain, differences, inputs  # noqa: F401 (a fixture)
from tests.pipelines.conftest import run  # noqa: F401 (a fixture)
from tests.pipelines.engine.jobs import shared_job

pytestmark = pytest.mark.dask
ROOT = Path(__file__).parents[2]
RUNNER = "apache_beam.runners.dask.dask_runner.DaskRunner"
SIZES = {f"write-{index:02d}": 1 for index in range(12)}


class Cluster:
    """A scheduler and two workers, each a process.

    Attributes:
        flags: of Beam, for a job here.
        workers: processes of the workers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._processes = folder, list[subprocess.Popen[bytes]]()
        file = folder / "scheduler.json"
        self._start("scheduler", "--host=localhost", "--port=0", "--no-dashboard", f"--scheduler-file={file}")
        while not file.exists():
            time.sleep(0.1)
        self.flags = (f"--dask_scheduler_file={file}",)
        self.workers = [self.start_worker() for _ in range(2)]

    def start_worker(self) -> subprocess.Popen[bytes]:
        place = f"--scheduler-file={self._folder}/scheduler.json"
        return self._start("worker", place, "--nthreads=1", "--no-nanny", "--no-dashboard", "--host=localhost")

    def _start(self, kind: str, *flags: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *flags]
        with (self._folder / f"{kind}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log
            )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.stop()


def test_all_jobs_have_the_bytes_of_one_process(cluster, inputs, tmp_path, run):  # noqa: F811
    for command in chain(inputs, tmp_path / "here"):
        assert run(*command, "--workers=1")[0] == 0
    for command in chain(inputs, tmp_path / "dask"):
        status, _, errors = run(*command, f"--runner={RUNNER}", "--shared-folders", *cluster.flags)
        assert status == 0, errors
    assert differences(tmp_path / "dask", tmp_path / "here") == []
    for kind in ("documents", "random", "linked", "masks"):
        assert verify(str(tmp_path / "dask" / kind)) == []


def engine(cluster: Cluster) -> Engine:
    return Engine(runner=RUNNER, shared_folders=True, beam_flags=cluster.flags)


def test_a_killed_workers_task_is_done_by_the_other(cluster, tmp_path):
    """Both workers have tasks; a stage begins when the one before is done."""
    (tmp_path / "log").mkdir()
    trouble = {name: {"log": str(tmp_path / "log"), "sleep": 0.5} for name in SIZES}

    def kill() -> None:
        while len(list((tmp_path / "out" / "_work").glob("write-*.json"))) < 3:
            time.sleep(0.05)
        cluster.workers.pop().send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), engine(cluster))
    killer.join()
    cluster.workers.append(cluster.start_worker())
    run_job(shared_job(str(tmp_path / "here"), SIZES), Engine(workers=1))
    assert differences(tmp_path / "out", tmp_path / "here") == []
    attempts = [path.name.rsplit("-", 2) for path in (tmp_path / "log").iterdir()]
    assert len({process for _, process, _ in attempts}) == 2
    times = Counter(task for task, _, _ in attempts)
    assert set(times) == set(SIZES)
    assert sum(times.values()) <= len(SIZES) + 2  # that of the killed worker, and none with a receipt


def test_a_failing_task_ends_the_job_with_its_own_message(cluster, tmp_path):
    trouble = {"write-03": {"fail": "row 7: no text; mend it"}}
    with pytest.raises(FarspanError, match=r"^task write-03 failed: row 7: no text; mend it\nfinished tasks are kept"):
        run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), engine(cluster))
    run_job(shared_job(str(tmp_path / "out"), SIZES), engine(cluster))
    assert (tmp_path / "out" / "manifest.json").exists()
