"""Processes that share a job: equal results, deaths, failures, signals, and what they leave behind."""

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from pipelines.engine.claims import lock_folder
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from tests.pipelines.engine.jobs import contents, cooperative, end_of, launch, shared_job, wait_for

SIZES = {f"write-{index:02d}": 1 + index % 7 for index in range(24)}


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, bytes]:
    """The output of the job in one process."""
    folder = str(tmp_path_factory.mktemp("one") / "out")
    run_job(shared_job(folder, SIZES), cooperative())
    return contents(folder)


@pytest.fixture
def log(tmp_path) -> Path:
    """A folder with a file for each attempt at a task."""
    (tmp_path / "log").mkdir()
    return tmp_path / "log"


def attempts(log: Path) -> Counter[str]:
    return Counter("-".join(path.name.split("-")[:2]) for path in log.iterdir())


def check_folder(folder: str, expected: dict[str, bytes]) -> None:
    """The artefact is that of one process, and nothing else is left, no empty folder either."""
    assert contents(folder) == expected
    if files.is_local(folder):
        assert sorted(os.listdir(folder)) == ["README.md", "manifest.json", "shards"]


@pytest.mark.parametrize("place", ["disk", "memory"])
@pytest.mark.parametrize("count", [2, 3])
def test_any_number_of_processes_makes_the_same_and_each_task_is_done_once(tmp_path, log, expected, place, count):
    folder = str(tmp_path / "out") if place == "disk" else "memory://bucket/out"
    trouble = {name: {"log": str(log)} for name in SIZES}
    with ThreadPoolExecutor(count) as pool:
        manifests = [pool.submit(run_job, shared_job(folder, SIZES, trouble), cooperative()) for _ in range(count)]
    assert {manifest.result().to_json() for manifest in manifests} == {expected["/manifest.json"]}
    assert attempts(log) == dict.fromkeys(SIZES, 1)
    check_folder(folder, expected)


def test_the_embedded_runner_makes_the_same(tmp_path, expected):
    run_job(shared_job(str(tmp_path / "out"), SIZES), Engine(workers=1))
    assert contents(str(tmp_path / "out")) == expected


def test_a_late_process_does_nothing(tmp_path, log, expected, capsys):
    folder = str(tmp_path / "out")
    run_job(shared_job(folder, SIZES, {name: {"log": str(log)} for name in SIZES}), cooperative())
    before = {path: os.stat(path).st_mtime_ns for path in files.walk(folder)}
    run_job(shared_job(folder, SIZES), cooperative())
    assert {path: os.stat(path).st_mtime_ns for path in files.walk(folder)} == before
    assert sum(attempts(log).values()) == len(SIZES)


def test_a_killed_processs_task_passes_on_and_its_leftover_goes(tmp_path, log, expected):
    folder = str(tmp_path / "out")
    trouble = {name: {"log": str(log), "sleep": 0.02} for name in SIZES}
    trouble["write-05"]["die"] = str(tmp_path / "died")
    processes = [launch(tmp_path / "errors", folder, SIZES, trouble) for _ in range(3)]
    assert sorted(end_of(*processes)) == [-signal.SIGKILL, 0, 0], (tmp_path / "errors").read_text()
    assert attempts(log) == {**dict.fromkeys(SIZES, 1), "write-05": 2}
    check_folder(folder, expected)


@pytest.mark.slow
def test_a_task_that_kills_every_process_ends_the_job(tmp_path, log):
    folder = str(tmp_path / "out")
    trouble = {"write-05": {"log": str(log), "die": "always"}, "write-06": {"sleep": 0.5}}
    processes = [launch(tmp_path / "errors", folder, SIZES, trouble) for _ in range(5)]
    assert Counter(end_of(*processes)) == {-signal.SIGKILL: 4, 1: 1}
    assert attempts(log) == {"write-05": 4}
    told = (tmp_path / "errors").read_text()
    assert "farspan: task write-05 failed: 4 processes ended in the middle of it, at last process " in told
    (last,) = end_of(launch(tmp_path / "errors", folder, SIZES, {"write-05": {"log": str(log)}}))
    assert last == 0  # the next start tries again
    assert attempts(log) == {"write-05": 5}


def test_a_failing_task_stops_all_processes_with_its_message(tmp_path, log, expected):
    folder = str(tmp_path / "out")
    trouble = {name: {"log": str(log), "sleep": 0.05} for name in SIZES}
    trouble["write-05"]["fail"] = "row 3: not a number; mend it"
    processes = [launch(tmp_path / "errors", folder, SIZES, trouble, engine=cooperative(lease=1)) for _ in range(3)]
    assert end_of(*processes) == [1, 1, 1]
    lines = (tmp_path / "errors").read_text().splitlines()
    message = [line for line in lines if line.startswith("farspan: ")]
    assert message == ["farspan: task write-05 failed: row 3: not a number; mend it"] * 3
    assert attempts(log)["write-05"] <= 3
    del trouble["write-05"]["fail"]
    assert end_of(launch(tmp_path / "errors", folder, SIZES, trouble)) == [0]
    check_folder(folder, expected)


@pytest.mark.parametrize(
    ("sleep", "number", "code", "again"),
    [
        (0.4, signal.SIGTERM, 143, 0),
        (30, signal.SIGTERM, 143, 1),
        pytest.param(30, signal.SIGINT, 130, 1, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_process_after_its_task_or_gives_the_task_back(
    tmp_path, log, expected, sleep, number, code, again
):
    """``grace`` is a second; a task of 30 s is given back, and done anew by the same command at once."""
    folder = str(tmp_path / "out")
    sizes = {**SIZES, "write-05": 100}  # the first one
    trouble = {"write-05": {"log": str(log), "sleep": sleep}}
    process = launch(tmp_path / "errors", folder, sizes, trouble, engine=cooperative(lease=300))
    wait_for(lambda: attempts(log))
    os.kill(process.pid, number)
    assert end_of(process) == [code]
    assert (Path(folder, "_work") / "write-05.json").exists() == (not again)
    assert not [path for path in files.walk(folder) if ".tmp-" in path]
    start = time.monotonic()
    trouble["write-05"]["sleep"] = 0
    assert end_of(launch(tmp_path / "errors", folder, sizes, trouble, engine=cooperative(lease=300))) == [0]
    assert time.monotonic() - start < 60  # not the lease
    assert attempts(log) == {"write-05": 1 + again}
    check_folder(folder, expected)


@pytest.mark.slow
def test_a_process_that_waits_ends_at_once_when_told(tmp_path, log):
    folder = str(tmp_path / "out")
    trouble = {"slow-0": {"log": str(log), "sleep": 300}}
    slow = launch(tmp_path / "errors", folder, {"slow-0": 1}, trouble)
    wait_for(lambda: attempts(log))
    idle = launch(tmp_path / "errors", folder, {"slow-0": 1}, trouble)
    wait_for(lambda: len(os.listdir(Path(folder, "_work", "processes"))) == 2)
    time.sleep(0.5)
    os.kill(idle.pid, signal.SIGTERM)
    assert end_of(idle) == [143]
    assert slow.is_alive()
    slow.kill()
    end_of(slow)


def test_a_task_that_fails_by_the_store_or_a_sick_machine_passes_on(tmp_path, expected):
    """Two processes fail with it; a third one does it."""
    folder, sick = str(tmp_path / "out"), tmp_path / "sick"
    trouble: dict[str, dict[str, Any]] = {name: {"sleep": 0.02} for name in SIZES}
    trouble["write-05"] |= {"sick": str(sick), "times": 2}
    processes = [launch(tmp_path / "errors", folder, SIZES, trouble) for _ in range(3)]
    assert end_of(*processes) == [0, 0, 0], (tmp_path / "errors").read_text()
    tries = sick.read_text().split()
    assert len(tries) == len({*tries}) == 2
    told = (tmp_path / "errors").read_text()
    assert told.count("task write-05 failed: ") == 2
    assert told.count("passed on to another process") == 2
    check_folder(folder, expected)


def test_a_task_that_fails_three_times_ends_the_job_and_the_next_start_tries_again(tmp_path, expected):
    folder, sick = str(tmp_path / "out"), tmp_path / "sick"
    trouble = {"write-05": {"sick": str(sick), "times": 3, "number": 28}}
    engine = cooperative(lease=1)
    processes = [launch(tmp_path / "errors", folder, SIZES, trouble, engine=engine) for _ in range(2)]
    assert end_of(*processes) == [1, 1]
    assert len(sick.read_text().split()) == 3
    told = (tmp_path / "errors").read_text()
    assert told.count("farspan: task write-05 failed: ") == 2
    assert "make room there" in told
    assert end_of(launch(tmp_path / "errors", folder, SIZES, trouble, engine=engine)) == [0]
    check_folder(folder, expected)


def test_a_process_alone_tries_a_failed_task_again_after_its_lease(tmp_path, expected):
    folder, sick = str(tmp_path / "out"), tmp_path / "sick"
    trouble = {"write-05": {"sick": str(sick), "times": 1}}
    begun = time.monotonic()
    assert end_of(launch(tmp_path / "errors", folder, SIZES, trouble, engine=cooperative(lease=1))) == [0]
    assert time.monotonic() - begun > 1
    check_folder(folder, expected)


@pytest.mark.parametrize("name", ["lock", "manifest", "write-05"])
def test_a_lost_answer_to_a_claim_hangs_nobody(tmp_path, expected, monkeypatch, name):
    """The store created the file, and the client, which asked again, is told that it exists."""
    create = files.create_new

    def lose(path: str, data: bytes) -> bool:
        return create(path, data) and f"/{name}." not in path

    monkeypatch.setattr(files, "create_new", lose)
    folder = str(tmp_path / "out")
    run_job(shared_job(folder, SIZES), Engine(workers=1) if name == "lock" else cooperative())
    check_folder(folder, expected)


@pytest.mark.parametrize("sees_job", [True, False])
def test_a_late_process_that_cannot_see_the_manifest_yet_ends_well(tmp_path, expected, monkeypatch, sees_job):
    """A network file system keeps an answer that there is no such file."""
    folder = str(tmp_path / "out")
    run_job(shared_job(folder, SIZES), cooperative())
    exists, until = files.exists, time.monotonic() + 1.5
    stale = {f"{folder}/manifest.json": False, f"{folder}/_work/job.json": sees_job}

    def ask(path: str) -> bool:
        return stale[path] if path in stale and time.monotonic() < until else exists(path)

    monkeypatch.setattr(files, "exists", ask)
    assert run_job(shared_job(folder, SIZES), cooperative()).totals["documents"] == len(SIZES)
    assert time.monotonic() > until
    check_folder(folder, expected)


@pytest.mark.slow
def test_a_first_owner_that_wakes_up_damages_nothing(tmp_path, log, expected):
    """A process is paused for longer than its lease; its task passes on, and it goes on before the job is finished."""
    folder = str(tmp_path / "out")
    sizes = {**SIZES, "write-05": 100}
    trouble = {"write-05": {"log": str(log), "sleep": 1.0}}
    paused = launch(tmp_path / "errors", folder, sizes, trouble, engine=cooperative(lease=1))
    wait_for(lambda: attempts(log))
    os.kill(paused.pid, signal.SIGSTOP)
    other = launch(tmp_path / "errors", folder, sizes, trouble, engine=cooperative(lease=1))
    wait_for(lambda: attempts(log)["write-05"] == 2)
    os.kill(paused.pid, signal.SIGCONT)
    assert end_of(paused, other) == [0, 0], (tmp_path / "errors").read_text()
    check_folder(folder, expected)


def test_a_process_that_works_alone_and_those_that_share_refuse_one_another(tmp_path, log):
    folder, trouble = str(tmp_path / "out"), {"slow-0": {"log": str(log), "sleep": 300}}
    with lock_folder(folder):
        sharing = launch(tmp_path / "errors", folder, {"slow-0": 1}, trouble)
        assert end_of(sharing) == [1]
    assert "another farspan job works here" in (tmp_path / "errors").read_text()
    sharing = launch(tmp_path / "errors", folder, {"slow-0": 1}, trouble)
    wait_for(lambda: attempts(log))
    with pytest.raises(FarspanError, match="another farspan job works here"), lock_folder(folder):
        pass
    sharing.kill()
    end_of(sharing)
    with lock_folder(folder):
        pass


@pytest.mark.slow
def test_another_jobs_processes_are_refused_and_stop_nobody(tmp_path, log, expected):
    folder = str(tmp_path / "out")
    process = launch(tmp_path / "errors", folder, SIZES, {"write-05": {"log": str(log), "sleep": 1}})
    wait_for(lambda: attempts(log))
    other: Any = shared_job(folder, SIZES)
    other.head.config["split"] = "held-out"
    with pytest.raises(FarspanError, match="holds a job with another configuration"):
        run_job(other, cooperative())
    assert end_of(process) == [0]
    check_folder(folder, expected)


@pytest.mark.slow
def test_a_folder_deleted_under_the_processes_stays_deleted(tmp_path, log):
    folder = tmp_path / "out"
    trouble = {"write-05": {"log": str(log), "sleep": 1}}
    process = launch(tmp_path / "errors", str(folder), SIZES, trouble, engine=cooperative(lease=1))
    wait_for(lambda: attempts(log))
    folder.rename(tmp_path / "gone")
    assert end_of(process) == [1]
    assert (
        "was deleted while the job ran; run the same command again to start over" in (tmp_path / "errors").read_text()
    )
    assert not folder.exists()
