"""A base install: what it serves works without the libraries of extras, and what needs them says so."""

import subprocess
import sys

import pytest

from tests.artefacts import make_corpus, make_documents

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

main(sys.argv[2:])
"""


def without(*hidden: str, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command in a process where modules can be neither imported nor found among the installed ones."""
    return subprocess.run([sys.executable, "-c", _WITHOUT, ",".join(hidden), *command], capture_output=True, text=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_corpus(str(tmp_path_factory.mktemp("corpus")))


@pytest.mark.parametrize(
    "command",
    [
        ["show", "CORPUS", "--objective", "span", "--width", "80"],
        ["stats", "CORPUS"],
        ["verify", "CORPUS"],
        ["train", "tiny", "--estimate", "1000", "--quiet"],
    ],
    ids=lambda command: command[0],
)
def test_a_base_install_shows_checks_and_trains(command: list[str], corpus: str):
    done = without(*EXTRAS, command=[corpus if word == "CORPUS" else word for word in command])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("preset", ["pegasus", "pegasus_paper", "pegasus_x", "pegasus_x_4096", "longt5_code"])
def test_the_documented_install_masks_principal_sentences(preset: str, corpus: str, tmp_path):
    """``pip install '.[pipelines,view]'`` has no spaCy."""
    hidden = [name for name in EXTRAS if name not in ("apache_beam", "grpc", "threadpoolctl")]
    flags = ["--preset", preset, "--corpus", corpus, "--output", str(tmp_path / "masks"), "--quiet"]
    done = without(*hidden, command=["mask", "principal_sentences", *flags])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_needs_beam(tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    output = str(tmp_path / "corpus")
    flags = ["--documents", documents, "--sequence-length", "256", "--output", output, "--engine", "beam"]
    done = without("apache_beam", command=["corpus", "random", *flags])
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
