"""Jobs on a real Flink cluster of two TaskManagers: the embedded engine's bytes, and ends of every kind.

Run by ``pytest -m flink``; skipped, with the reason, where Java, Flink or Beam's job server is missing.
"""

import filecmp
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from pipelines.inspect.verify import verify
from tests.flink.cluster import Cluster
from tests.pipelines.conftest import run  # noqa: F401 (a fixture)
from tests.pipelines.engine.jobs import write_texts
from tests.tiny_encoder import make_encoder

pytestmark = pytest.mark.flink


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("cluster"), keeps_classes=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Raw text, a tokenizer and an encoder."""
    folder = tmp_path_factory.mktemp("inputs")
    write_texts(folder, ("a.jsonl", "b.jsonl", "c.jsonl"), 120)
    make_encoder(str(folder / "encoder"))
    return folder


def documents(inputs: Path, output: object, task_bytes: int = 4000) -> list[str]:
    return ["documents", "--input", f"{inputs}/raw", "--tokenizer", f"{inputs}/tokenizer", "--held-out", "0.1",
            "--task-bytes", str(task_bytes), "--output", str(output)]  # fmt: skip


def chain(inputs: Path, root: Path) -> list[list[str]]:
    """Text to documents, to a random and a linked corpus, to masks."""
    made, packed = f"--documents={root}/documents", "--sequence-length=256"
    return [
        documents(inputs, root / "documents", 16000),
        ["corpus", "random", made, packed, "--shards=3", f"--output={root}/random"],
        ["corpus", "linked", made, packed, "--shards=2", f"--encoder={inputs}/encoder", f"--output={root}/linked"],
        ["mask", "span", "--preset=t5", f"--corpus={root}/random", f"--output={root}/masks"],
    ]


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "pipelines", *arguments]
    # Ctrl-C works even if these tests run in the background of a shell, which ignores it there
    take_interrupts = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=take_interrupts
    )


def farspan(*arguments: str) -> tuple[int, str]:
    process = start(*arguments)
    _, errors = process.communicate(timeout=400)
    return process.returncode, errors


@pytest.fixture
def here(run):  # noqa: F811
    """Run a command in this process, which spares the start of another; it must succeed."""

    def call(*arguments: str) -> None:
        status, _, errors = run(*arguments)
        assert status == 0, errors

    return call


def receipts(output: Path) -> set[str]:
    return {path.stem for path in (output / "_work").glob("documents-*.json")}


def wait_for(condition, process: subprocess.Popen[str] | None = None) -> None:
    last = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < last
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def differences(found: Path, expected: Path) -> list[str]:
    """Files whose bytes differ, or that only one folder has; ``.origins.json`` says where the parents were."""
    names = {str(path.relative_to(root)) for root in (found, expected) for path in root.rglob("*") if path.is_file()}
    names = {name for name in names if not os.path.basename(name).startswith(".")}
    return sorted(
        name
        for name in names
        if not ((found / name).exists() and (expected / name).exists())
        or not filecmp.cmp(found / name, expected / name, shallow=False)
    )


@pytest.fixture
def pool() -> Iterator[list[str]]:
    """Flags of a job whose workers come from a pool; both TaskManagers call their first worker 1-1, so one has work."""
    command = [sys.executable, "-P", "-m", "pipelines.harness", "--worker_pool", "--service_port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as pool:
        try:
            address = pool.stdout.readline().strip().rpartition("=")[2]
            yield ["--environment_type=EXTERNAL", f"--environment_config={address}", "--parallelism=1"]
        finally:
            pool.terminate()


def test_all_jobs_have_the_bytes_of_the_embedded_engine(cluster, inputs, tmp_path, here, pool):
    """Flink starts the workers, and keeps them from stage to stage, or starts a worker for each stage by a pool."""
    kept = ["--environment_cache_millis=10000"]
    for command in chain(inputs, tmp_path / "embedded"):
        here(*command, "--workers=1")
    for command in chain(inputs, tmp_path / "flink"):
        here(*command, *cluster.flags(served=True), *(pool if "random" in command else kept))
    assert differences(tmp_path / "flink", tmp_path / "embedded") == []
    for kind in ("documents", "random", "linked", "masks"):
        assert verify(str(tmp_path / "flink" / kind)) == []


def test_interrupted_killed_and_robbed_of_a_task_manager(cluster, inputs, tmp_path, here):
    """Ctrl-C cancels, a start after ``kill -9`` of the driver goes on, and Flink outlives a TaskManager.

    No finished task repeats. Tasks begin as a gate lets them, so that each end comes while the others wait.
    """
    output, begun, gate = tmp_path / "documents", tmp_path / "begun", tmp_path / "gate"
    begun.touch()
    command = [*documents(inputs, output), *cluster.flags(GATE=gate, BEGUN=begun)]

    def let(number: int, process: subprocess.Popen[str]) -> None:
        """Open the gate for tasks up to a number, and wait for their receipts."""
        (tmp_path / "new").write_text(str(number))
        (tmp_path / "new").rename(gate)
        wait_for(lambda: len(receipts(output)) >= number, process)

    gate.write_text("0")
    process = start(*command)
    let(2, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=400)
    assert process.returncode == 130
    assert "farspan: cancelled job farspan-documents-" in errors
    (*_, last) = errors.splitlines()
    assert last == "farspan: interrupted; finished work is kept: run the same command again to resume"
    assert cluster.states()[-1] == "CANCELED"
    assert not list(output.glob("_work/claims/lock.*"))

    process = start(*command)
    let(5, process)
    process.kill()
    process.communicate()
    assert cluster.states()[-1] == "RUNNING"
    jobs = len(cluster.states())

    process = start(*command)  # the workers of the first job end their tasks, and begin no other
    wait_for(lambda: len(cluster.states()) > jobs, process)
    let(7, process)
    wait_for(lambda: "FAILED" in cluster.states(), process)
    let(8, process)
    kept = receipts(output)
    cluster.kill_task_manager(1)
    cluster.start_task_manager(1)
    gate.write_text("1000")
    assert process.wait(timeout=300) == 0, process.stderr.read()
    assert verify(str(output)) == []
    assert not (output / "_work").exists()
    times = Counter(begun.read_text().split())
    assert {times[task] for task in kept} == {1}  # no task with a receipt repeats
    assert sum(times.values()) <= len(times) + 2  # Flink's restart stops what two workers have in hand
    here(*documents(inputs, tmp_path / "embedded"), "--workers=1")
    assert differences(output, tmp_path / "embedded") == []


def test_a_failing_task_ends_the_job_with_its_own_message(cluster, inputs, tmp_path):
    flags = cluster.flags(served=True, FAIL="documents-00003")
    status, errors = farspan(*documents(inputs, tmp_path / "documents"), *flags)
    assert status == 1
    assert "farspan: task documents-00003 failed: the disk of dreams is full\n" in errors
    assert "Traceback" not in errors
    assert "Caused by" not in errors
    wait_for(lambda: cluster.states()[-1] == "CANCELED")


def test_a_worker_that_cannot_start_ends_the_job_with_the_reason(cluster, inputs, tmp_path, run):  # noqa: F811
    flags = [*cluster.flags(served=True), '--environment_config={"command": "/no/worker"}', "--worker-timeout=12"]
    status, _, errors = run(*documents(inputs, tmp_path / "documents"), *flags)
    assert status == 1
    assert 'Cannot run program "/no/worker"' in errors.splitlines()[-1]
    wait_for(lambda: cluster.states()[-1] in ("CANCELED", "FAILED"))


def test_a_job_server_that_hangs_is_not_waited_for_when_all_tasks_are_done(
    cluster,
    inputs,
    tmp_path,
    run,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr("pipelines.engine.beam.pipeline._END_SECONDS", 3.0)
    output, begun, gate = tmp_path / "documents", tmp_path / "begun", tmp_path / "gate"
    begun.touch()
    gate.write_text("3")
    flags = cluster.flags(served=True, GATE=gate, BEGUN=begun)
    server = cluster.processes["job server"]

    def stop_it() -> None:
        try:
            wait_for(lambda: len(receipts(output)) >= 3)
            server.send_signal(signal.SIGSTOP)
        finally:
            gate.write_text("1000")

    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(stop_it)
        try:
            status, _, errors = run(*documents(inputs, output), *flags)
            stopped.result()
        finally:
            server.send_signal(signal.SIGCONT)
    assert status == 0, errors
    assert "all tasks are done, and job farspan-documents-" in errors
    assert verify(str(output)) == []


def test_a_job_server_that_does_not_start_is_quoted(cluster, inputs, tmp_path, run):  # noqa: F811
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no jar")
    flags = [*cluster.flags(), f"--flink_job_server_jar={broken}"]
    status, _, errors = run(*documents(inputs, tmp_path / "documents"), *flags)
    assert status == 1
    assert "Beam's job server ended at once, with status 1; it said:" in errors
    assert f"Error: Invalid or corrupt jarfile {broken}" in errors


def test_no_process_is_left(cluster):
    """Workers and job servers end with those that started them."""
    if "job server" in cluster.processes:
        cluster.processes["job server"].kill()
        cluster.processes["job server"].wait()
    wait_for(lambda: not [line for line in _processes() if "tests.flink.worker" in line or "--job-port" in line])


def _processes() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found
