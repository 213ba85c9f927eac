"""A job shared by the elements of a Slurm array: one is killed, one reaches its time limit and is requeued.

The cluster is a real one on this machine, of Debian's packages (``../shared/engines/slurm-cluster``). Slurm looks at
time limits each half minute, so the job with the time limit waits on a node of its own while the array is tested.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpora.storage.manifest_file import read_manifest
from pipelines.inspect.verify import verify
from tests.pipelines.engine.jobs import contents, wait_for, write_texts

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[3]
ENGINES = Path(os.environ.get("FARSPAN_ENGINES", ROOT.parent / "shared" / "engines"))
FILES = 6
SLOWLY = """
import os, sys, time
from pipelines.documents import job
do = job.TokenizeRanges.__call__
def slowly(self, task, report):
    time.sleep({pause} * (not os.path.exists(self.output + ".hurry")))
    return do(self, task, report)
job.TokenizeRanges.__call__ = slowly
from pipelines.cli import main; main()
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment of a cluster with three nodes."""
    script = ENGINES / "slurm-cluster"
    if not script.exists():
        pytest.skip(f"no {script}")
    if os.getuid() or not shutil.which("apt-get"):
        pytest.skip("Slurm's daemons want root, and their packages Debian")
    folder = Path(tempfile.gettempdir(), "farspan-slurm")  # keeps the packages from one call to the next
    for name in ("state", "spool-n1", "spool-n2", "spool-n3"):
        shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    script = quick(script, folder / "slurm-cluster")
    started = subprocess.run([script, "start", folder], capture_output=True, text=True, timeout=300)
    if started.returncode:
        pytest.skip(f"{script} start: {started.stderr.strip()[-200:]}")
    told = dict(word.split("=", 1) for word in shlex.split(started.stdout.splitlines()[-1])[1:])
    yield {**os.environ, **told, "PATH": told["PATH"].replace("$PATH", os.environ["PATH"])}
    subprocess.run([script, "stop", folder], check=True)


def quick(script: Path, copy: Path) -> Path:
    """A copy of the script whose cluster starts a requeued job after seconds, not minutes, and has a third node."""
    node, third = " Port=16819 CPUs=1 RealMemory=2000\n", "NodeName=n3 NodeHostname=$host NodeAddr=127.0.0.1 Port=16820"
    changes = {
        "CredType=cred/none\n": "CredType=cred/none\nAuthInfo=cred_expire=5\nSchedulerTimeSlice=5\n"
        "SchedulerParameters=bf_interval=1,sched_interval=2\n",
        node: f"{node}{third} CPUs=1 RealMemory=2000\n",
        '"$folder/spool-n2"': '"$folder/spool-n2" "$folder/spool-n3"',
        "Nodes=n1,n2": "Nodes=n1,n2,n3",
        "for node in n1 n2;": "for node in n1 n2 n3;",
        "= 2 ] && break": "= 3 ] && break",
    }
    text = script.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    copy.write_text(text)
    copy.chmod(0o755)
    return copy


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    """Raw text and a tokenizer."""
    folder = tmp_path_factory.mktemp("texts")
    write_texts(folder, (f"{number:02d}.jsonl" for number in range(FILES)), 20)
    return folder


def command(raw: Path, output: Path, pause: float, *flags: str) -> list[str]:
    """``farspan documents`` whose tasks take ``pause`` seconds longer."""
    program = [sys.executable, "-c", SLOWLY.format(pause=pause)]
    job = ["documents", "--input", f"a={raw}/raw/*.jsonl", "--tokenizer", str(raw / "tokenizer")]
    return [*program, *job, "--task-bytes", "1000", "--output", str(output), *flags]


def array_script() -> str:
    """The script of docs/engines.md, without the lines of its header."""
    text = (ROOT / "docs" / "engines.md").read_text("utf-8")
    (script,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH.*?)```", text, re.DOTALL)
    return script


def submit(slurm: dict[str, str], folder: Path, words: list[str], *flags: str) -> str:
    """Submit the script of docs/engines.md with another command and other resources; the job's id."""
    script = re.sub(
        r"^farspan .*?&$", lambda _: shlex.join(words) + " &", array_script(), flags=re.DOTALL | re.MULTILINE
    )
    (folder / "job.sh").write_text(script)
    resources = ["--cpus-per-task=1", "--mem=0", f"--chdir={ROOT}", f"--output={folder}/log-%a.txt"]
    asked = ["sbatch", "--parsable", *resources, *flags, str(folder / "job.sh")]
    return subprocess.run(asked, env=slurm, capture_output=True, text=True, check=True).stdout.strip()


def receipts(output: Path) -> int:
    return len([*output.glob("_work/documents-*.json")])


def launchers(output: Path) -> list[int]:
    """Process ids of the processes of a job, in the order of their starts."""
    named = f"\0{output}\0".encode()
    found = [int(process.name) for process in Path("/proc").iterdir() if process.name.isdigit()
             and named in _arguments(process) and b"\0-c\0" in _arguments(process)]  # fmt: skip
    return sorted(found)


def _arguments(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def limited(slurm, raw, tmp_path_factory) -> tuple[str, Path]:
    """A job that reaches its time limit: its id, and the folder of its output and log. It starts before other tests.

    Slurm sends the signal at the first look after 5 s (a minute, less 25 s, less the half minute between two looks).
    """
    folder = tmp_path_factory.mktemp("limited")
    words = command(raw, folder / "documents", 2, "--engine=cooperative", "--grace=5")
    limits = ["--time=1", "--signal=B:TERM@25", "--nodelist=n3"]
    return submit(slurm, folder, words, "--array=0", *limits), folder


@pytest.fixture(scope="module")
def expected(raw, tmp_path_factory) -> dict[str, bytes]:
    """The files that the embedded runner makes."""
    output = tmp_path_factory.mktemp("expected") / "documents"
    subprocess.run(command(raw, output, 0, "--workers=1"), cwd=ROOT, check=True, capture_output=True)
    return contents(str(output))


def check(output: Path, expected: dict[str, bytes]) -> None:
    """The artefact is the embedded runner's, sound, and nothing else is in its folder."""
    assert contents(str(output)) == expected
    assert verify(str(output)) == []
    assert read_manifest(str(output)).totals["documents"] == 20 * FILES


def test_an_array_of_which_one_element_is_killed(slurm, raw, limited, expected, tmp_path):
    """The third element starts when another one has ended, as two nodes are left."""
    output = tmp_path / "documents"
    words = command(raw, output, 0.7, "--engine=cooperative", "--lease=8")
    submit(slurm, tmp_path, words, "--array=0-2", "--exclude=n3")
    wait_for(lambda: receipts(output) > 4 and len(launchers(output)) == 2, 240)
    os.kill(launchers(output)[0], 9)
    wait_for(lambda: (output / "manifest.json").exists() and not launchers(output), 240)
    check(output, expected)


def test_a_time_limit_requeues_an_element_which_goes_on(slurm, limited, expected):
    job, folder = limited
    output, log = folder / "documents", folder / "log-0.txt"
    wait_for(lambda: log.exists() and "farspan: ended by SIGTERM" in log.read_text(), 240)
    done = receipts(output)
    assert not (output / "manifest.json").exists()
    wait_for(lambda: "Restarts=1" in shown(slurm, job), 240)
    subprocess.run(["scontrol", "update", f"JobId={job}_0", "TimeLimit=10"], env=slurm, check=True)
    Path(f"{output}.hurry").touch()
    wait_for(lambda: (output / "manifest.json").exists() and not launchers(output), 240)
    assert f"resuming: {done} of " in log.read_text() or not done  # as on a busy machine
    check(output, expected)


def shown(slurm: dict[str, str], job: str) -> str:
    return subprocess.run(["scontrol", "show", "job", job], env=slurm, capture_output=True, text=True).stdout
