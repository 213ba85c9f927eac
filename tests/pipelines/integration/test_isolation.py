"""A command runs no file of its folder; a base install serves what needs no extra, and says what does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.artefacts import make_corpus, make_documents, small_tokenizer

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
        [sys.executable, *"-m pipelines train tiny --set data.objective.name=guest --set data.corpus=nowhere".split()],
        cwd=hostile,
        env=without_search_path(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("farspan: ")
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


EXTRAS = ("apache_beam", "grpc", "threadpoolctl", "faiss", "spacy", "matplotlib", "tensorboard", "boto3", "botocore")

_WITHOUT = """
import sys
from importlib.metadata import Distribution, PackageNotFoundError

hidden, find = sys.argv[1].split(","), Distribution.from_name

def find_unless_hidden(name):
    if name in hidden:
        raise PackageNotFoundError(name)
    return find(name)

Distribution.from_name = find_unless_hidden
sys.modules.update(dict.fromkeys(hidden))
from pipelines.cli import main

for command in sys.argv[2:]:
    main(command.split())
"""


def without(*hidden: str, commands: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a process where modules can be neither imported nor found among the installed ones."""
    return subprocess.run([sys.executable, "-c", _WITHOUT, ",".join(hidden), *commands], capture_output=True, text=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_corpus(str(tmp_path_factory.mktemp("corpus")))


def test_a_base_install_shows_checks_and_trains(corpus: str):
    looks = [f"show {corpus} --objective span --width 80", f"stats {corpus}", f"verify {corpus}"]
    done = without(*EXTRAS, commands=[*looks, "train tiny --estimate 1000 --quiet"])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_documented_install_masks_principal_sentences(corpus: str, tmp_path):
    """``pip install '.[pipelines,view]'`` has no spaCy."""
    hidden = [name for name in EXTRAS if name not in ("apache_beam", "grpc", "threadpoolctl")]
    presets = ("pegasus", "pegasus_paper", "pegasus_x", "pegasus_x_4096", "longt5_code")
    mask = f"mask principal_sentences --corpus {corpus} --workers 1 --quiet"
    done = without(*hidden, commands=[f"{mask} --preset {name} --output {tmp_path / name}" for name in presets])
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in tmp_path.iterdir()} == {*presets}


def test_a_job_needs_beam(tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    output = str(tmp_path / "corpus")
    flags = f"--documents {documents} --sequence-length 256 --output {output} --engine beam --quiet"
    done = without("apache_beam", commands=[f"corpus random {flags}"])
    assert done.returncode == 1
    assert done.stderr == "farspan: running a job on Beam needs apache_beam: pip install 'farspan[pipelines]'\n"


@pytest.mark.parametrize(
    ("hidden", "command", "message"),
    [
        ("faiss", "cluster --vectors V --output O", "clustering vectors needs faiss: pip install 'farspan[linked]'"),
        (
            "spacy",
            "check-objective entity_pyramid --preset primera --corpus CORPUS",
            "finding the names in a text needs spacy: pip install 'farspan[spacy]'",
        ),
        (
            "matplotlib",
            "stats CORPUS --figure F.png",
            "drawing a figure needs matplotlib: pip install 'farspan[figures]'",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_extra(hidden, command, message, corpus, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    loaded = [name for name in sys.modules if name.split(".")[0] == hidden or name.startswith("corpora.retrieval")]
    for name in [*loaded, "pipelines.retrieval.cluster", "pipelines.retrieval.neighbours"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, hidden, None)
    monkeypatch.setattr("objectives.sentences.entities._pipeline.cache_clear", lambda: None, raising=False)
    status, _, errors = run(*(corpus if word == "CORPUS" else word for word in command.split()))
    assert (status, errors) == (1, f"farspan: {message}\n")
