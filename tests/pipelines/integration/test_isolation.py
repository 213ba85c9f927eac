"""A command runs no file of the folder that it is started in, and no other machine can reach its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.engine.local import search_path
from tests.artefacts import small_tokenizer

# imported at the start of a command, of Beam, of a task, by the standard library or by ours
MODULES = "__future__ argparse re csv secrets random socket json collections numpy pyarrow tokenizers grpc nupunkt"
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
LISTENING = "0A"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of modules, packages and entry points that leave a file ``ran`` when one is imported."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    run = f"open({str(folder / 'ran')!r}, 'a').write(__name__ + ' '); raise ImportError('of the current folder')"
    for name in MODULES.split():
        (folder / f"{name}.py").write_text(run)
    for name in ("corpora", "objectives", "sentencepiece"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(run)
    info = folder / "guest-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[farspan.objectives]\nguest = argparse:Guest\n")
    return folder


def without_search_path() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}


def listening(session: int) -> set[str]:
    """Addresses, in hexadecimal, on which processes of a session accept connections."""
    owned = set()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.getsid(int(process.name)) == session:
                owned |= {os.readlink(link) for link in (process / "fd").iterdir()}
        except (OSError, ProcessLookupError):
            continue
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == LISTENING and f"socket:[{row[9]}]" in owned}


ENGINES = {
    "auto": ["--workers=2"],
    "beam": ["--engine=beam", "--direct_running_mode=multi_processing", "--direct_num_workers=2"],
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_with_workers(hostile, tmp_path, engine):
    small_tokenizer().save(str(tmp_path / "tokenizer"))
    (tmp_path / "texts.jsonl").write_text('{"text": "The quick brown fox. It jumps."}\n' * 200)
    command = [sys.executable, "-m", "pipelines", "documents", "--input", f"a={tmp_path / 'texts.jsonl'}"]
    command += ["--tokenizer", str(tmp_path / "tokenizer"), "--output", str(tmp_path / "documents")]
    command += ["--task-bytes", "1000", *ENGINES[engine]]
    job = subprocess.Popen(
        command, cwd=hostile, env=without_search_path(), start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    seen: set[str] = set()
    while job.poll() is None:
        seen |= listening(job.pid)
        time.sleep(0.5)  # a look at all processes takes long
    assert job.returncode == 0, job.stderr.read()
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()
    assert seen or engine == "auto"  # Beam's servers
    assert seen <= LOOPBACK


def test_training(hostile):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pipelines",
            "train",
            "tiny",
            "--set",
            "data.objective.name=guest",
            "--set",
            "data.corpus=nowhere",
        ],
        cwd=hostile,
        env=without_search_path(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("farspan: ")
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


def test_workers_look_where_the_driver_does(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/some/where else", *sys.path])
    assert search_path()[0] == "/some/where else"
