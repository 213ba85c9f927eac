"""Worker processes of a driver: equal results, failures, deaths, and what they leave behind."""

import errno
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from corpora.errors import FarspanError
from pipelines.engine.local import search_path
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.engine.jobs import contents, end_of, launch, shared_job, wait_for

SIZES = {f"write-{index:02d}": 1 + index % 5 for index in range(12)}
TWO = Engine(workers=2)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """The output of the job in one process."""
    folder = tmp_path_factory.mktemp("one") / "out"
    run_job(shared_job(str(folder), SIZES), Engine(workers=1))
    return contents(str(folder))


def workers_of(driver: int) -> list[int]:
    """Worker processes of a driver that have not ended."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"pipelines.engine.local" in words and words[-2] == b"%d" % driver:
            found.append(int(process.name))
    return found


def test_workers_make_the_same_and_do_each_task_once(tmp_path, expected):
    (tmp_path / "log").mkdir()
    trouble = {name: {"log": str(tmp_path / "log"), "sleep": 0.05} for name in SIZES}
    run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), TWO)
    assert contents(str(tmp_path / "out")) == expected
    attempts = [path.name.rsplit("-", 2) for path in (tmp_path / "log").iterdir()]
    assert sorted(task for task, _, _ in attempts) == sorted(SIZES)
    assert {int(pid) for _, pid, _ in attempts}.isdisjoint({os.getpid()})
    assert not workers_of(os.getpid())


def test_the_driver_prints_the_notes_of_workers_once(tmp_path, capsys):
    run_job(shared_job(str(tmp_path / "out"), SIZES, {name: {"note": "compiles loops"} for name in SIZES}), TWO)
    assert capsys.readouterr() == ("", "compiles loops\n")


def test_a_failed_task_ends_the_job_as_in_one_process(tmp_path, expected):
    trouble = {"write-03": {"fail": "row 7: no text; mend it"}}
    messages = []
    for workers in (1, 2):
        with pytest.raises(FarspanError) as caught:
            run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), Engine(workers=workers))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert messages[0].startswith("task write-03 failed: row 7: no text; mend it")
    run_job(shared_job(str(tmp_path / "out"), SIZES), TWO)
    assert contents(str(tmp_path / "out")) == expected


def test_a_task_may_kill_its_worker_any_number_of_times(tmp_path, expected):
    """After each death the command may be repeated."""
    trouble = {"write-04": {"die": "always"}}
    for _ in range(5):
        with pytest.raises(
            FarspanError, match=r"was killed \(.*\) at task write-04; .* fewer --workers if memory is short"
        ):
            run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), TWO)
    run_job(shared_job(str(tmp_path / "out"), SIZES), TWO)
    assert contents(str(tmp_path / "out")) == expected


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_driver(tmp_path, expected, number):
    driver = launch(tmp_path / "errors", str(tmp_path / "out"), SIZES, {"write-05": {"sleep": 60}}, engine=TWO)
    wait_for(lambda: len(list((tmp_path / "out" / "_work").glob("write-*.json"))) >= 3)
    assert len(workers_of(driver.pid)) == 2
    os.kill(driver.pid, number)
    assert end_of(driver) == [-number]
    wait_for(lambda: not workers_of(driver.pid))
    run_job(shared_job(str(tmp_path / "out"), SIZES), TWO)
    assert contents(str(tmp_path / "out")) == expected


def test_a_deleted_folder_ends_the_job(tmp_path):
    driver = launch(tmp_path / "errors", str(tmp_path / "out"), SIZES, {"write-05": {"sleep": 60}}, engine=TWO)
    wait_for(lambda: len(list((tmp_path / "out" / "_work").glob("write-*.json"))) >= 11)
    shutil.rmtree(tmp_path / "out")
    assert end_of(driver) == [1]
    errors = (tmp_path / "errors").read_text()
    assert f"\nfarspan: {tmp_path / 'out'}: was deleted while the job ran" in f"\n{errors}"
    assert "tasks are kept" not in errors


@pytest.mark.parametrize("status", [0, 1])
def test_a_worker_that_ends_in_the_middle_is_said(tmp_path, status):
    """Also with the status of success, or with that of a failure and without a message."""
    trouble = {"write-04": {"exit": status}}
    with pytest.raises(FarspanError, match=f"worker process ended with status {status} at task write-04; finished"):
        run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), TWO)


def test_a_worker_that_cannot_be_started_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", Mock(side_effect=OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
    with pytest.raises(FarspanError, match=r"^a worker process cannot be started: .*; raise the limit of open files"):
        run_job(shared_job(str(tmp_path / "out"), SIZES), TWO)


def test_a_worker_imports_from_a_folder_with_a_colon(tmp_path, monkeypatch):
    (tmp_path / "12:30").mkdir()
    (tmp_path / "12:30" / "in_a_folder_with_a_colon.py").write_text(
        "from tests.pipelines.engine.jobs import _first\ndef work(*given): return _first(*given)"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "12:30"))
    module = importlib.import_module("in_a_folder_with_a_colon")
    job = shared_job(str(tmp_path / "out"), dict.fromkeys(["write-0", "write-1"], 1))
    run_job(replace(job, stages=[replace(job.stages[0], work=module.work), *job.stages[1:]]), Engine(workers=2))
    assert (tmp_path / "out" / "manifest.json").exists()


def test_workers_search_the_current_folder_last(tmp_path, monkeypatch):
    """A notebook or ``python -c`` searches it first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/one", "/two"])
    assert search_path() == ["/one", "/two", str(tmp_path)]
    monkeypatch.setattr(sys, "path", ["/one", "/two"])
    assert search_path() == ["/one", "/two"]


def test_a_task_that_fails_by_its_machine_is_done_by_another_worker(tmp_path, expected):
    trouble = {"write-03": {"sick": str(tmp_path / "sick"), "times": 2}}
    run_job(shared_job(str(tmp_path / "out"), SIZES, trouble), TWO)
    assert contents(str(tmp_path / "out")) == expected
    assert len((tmp_path / "sick").read_text().split()) == 2


def test_what_a_worker_cannot_do_is_said(tmp_path, monkeypatch):
    """Here: to import the module of its work; with more tasks than fit into a pipe."""
    job = shared_job(str(tmp_path / "out"), {f"write-{index:04d}": 1 for index in range(3000)})
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not (Path(path) / "tests").exists()])
    with pytest.raises(FarspanError, match=r"the runner stopped: .*No module named 'tests"):
        run_job(job, TWO)


def test_no_process_imports_beam(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / "texts" / f"{name}.txt").write_text("The old mill. " * 100)
    (tmp_path / "apache_beam.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    script = (
        "import farspan, sys; from tests.artefacts import small_tokenizer; "
        "small_tokenizer().save('tokenizer'); "
        "farspan.documents(input='texts', tokenizer='tokenizer', output='documents', workers=2, task_bytes=1000)"
    )
    root = str(Path(__file__).parents[3])
    search = os.pathsep.join([str(tmp_path), root])
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": search}, check=True, timeout=120
    )
    assert (tmp_path / "documents" / "manifest.json").exists()
    assert not (tmp_path / "imported").exists()
