"""Commands with `--engine cooperative`: the bytes of one process, without Beam, on an object store, and refusals."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.storage import files
from corpora.storage.files import read_bytes
from pipelines import functions
from pipelines.engine.run import run_job
from pipelines.inspect.verify import verify
from tests.artefacts import make_documents, write_mixture_file
from tests.pipelines.engine.jobs import contents, cooperative, shared_job, write_texts
from tests.pipelines.pairs.raw import write_scrolls
from tests.tiny_encoder import make_encoder

WITHOUT_BEAM = """
import json, sys
sys.modules["apache_beam"] = None
from pipelines.cli import main
for command in json.loads(sys.argv[1]):
    main([*command, "--engine", "cooperative"])
"""


def chain(root: Path, output: Path) -> list[list[str]]:
    """Raw text to documents, documents to a corpus (two stages and more), the corpus to masks."""
    documents, corpus, masks = (str(output / kind) for kind in ("documents", "corpus", "masks"))
    return [
        ["documents", "--input", f"a={root}/raw/*.jsonl", "--tokenizer", str(root / "tokenizer"), "--held-out", "0.1",
         "--task-bytes", "4000", "--error-budget", "0.05", "--output", documents],
        ["corpus", "random", "--documents", documents, "--sequence-length", "256", "--shards", "4", "--output", corpus],
        ["mask", "span", "--preset", "t5", "--corpus", corpus, "--output", masks],
    ]  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    write_texts(folder, ("a.jsonl", "b.jsonl", "c.jsonl"), 60)
    with (folder / "raw" / "a.jsonl").open("a") as file:
        file.write("\nno record")
    return folder


def test_three_jobs_have_the_bytes_of_the_embedded_runner_and_never_import_beam(root, tmp_path, run):
    """Dead letters and manifests too."""
    commands = json.dumps(chain(root, tmp_path / "shared"))
    done = subprocess.run([sys.executable, "-c", WITHOUT_BEAM, commands], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command in chain(root, tmp_path / "embedded"):
        assert run(*command, "--workers=1")[0] == 0
    assert contents(str(tmp_path / "shared")) == contents(str(tmp_path / "embedded"))
    assert any("rejects" in name for name in contents(str(tmp_path / "shared")))


@pytest.mark.slow
def test_two_processes_share_a_job_on_an_object_store(bucket, store, tmp_path):
    sizes = {f"write-{index:02d}": 1 for index in range(12)}
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_job, shared_job(f"{bucket}/out", sizes), cooperative(lease=30)) for _ in range(2)]
    assert len({job.result().to_json() for job in jobs}) == 1
    run_job(shared_job(str(tmp_path / "out"), sizes), cooperative())
    here, there = str(tmp_path / "out"), f"{bucket}/out"
    assert {path.removeprefix(here): read_bytes(path) for path in files.walk(here)} == {
        path.removeprefix(there): read_bytes(path) for path in files.walk(there)
    }
    claims = [path for method, path, *_ in store.requests if method == "PUT" and "/claims/0/" in path]
    assert len(sizes) <= len(claims) <= 2 * len(sizes)


def test_flags_of_beam_and_misspelt_ones_are_refused(run, tmp_path):
    command = ["corpus", "random", "--documents", tmp_path / "documents", "--sequence-length", "64", "--output",
               tmp_path / "corpus", "--engine", "cooperative"]  # fmt: skip
    for flags, told in (
        (["--direct_num_workers=2"], "--direct_num_workers=2: unknown argument"),
        (["--leese=3"], "did you mean '--lease'"),
        (["--runner=FlinkRunner"], "--engine cooperative: has no --runner FlinkRunner"),
    ):
        status, _, errors = run(*command, *flags)
        assert (status, told in errors) == (1, True), errors
    assert not (tmp_path / "corpus").exists()


def test_a_store_that_ignores_conditions_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "create_new", lambda *_: True)
    with pytest.raises(FarspanError, match=r"ignores If-None-Match\); use --workers there"):
        run_job(shared_job("memory://bucket/out", {"write-00": 1}), cooperative())
    assert files.walk("memory://bucket/out") == []


COMMANDS = {
    "embed": lambda root: {"documents": root / "documents", "encoder": root / "encoder", "block": 1024},
    "corpus_long": lambda root: {"recipe": root / "mixture.toml", "shards": 3},
    "cluster": lambda root: {"vectors": root / "vectors", "centroids": 3},
    "neighbours": lambda root: {"clusters": root / "clusters"},
    "corpus_linked": lambda root: {
        "documents": root / "documents", "encoder": root / "encoder", "sequence_length": 256, "shards": 3},
    "corpus_related": lambda root: {
        "documents": root / "documents", "neighbours": root / "neighbours", "sequence_length": 256, "shards": 3},
    "pairs": lambda root: {
        "input": [root / "scrolls"], "format": "scrolls", "documents": root / "read", "task_bytes": 4000},
}  # fmt: skip
"""Function of the command -> its options, from the folder of inputs."""


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> Path:
    """Documents of two sources, with clusters; an encoder; a mixture file."""
    root = tmp_path_factory.mktemp("inputs")
    make_documents(str(root / "documents"), shards=3, documents=60, sources=("left", "right"), clusters=13)
    make_encoder(str(root / "encoder"))
    write_mixture_file(root, str(root / "documents"), left="weight = 0.6", right="weight = 0.4")
    return root


@pytest.fixture(scope="module")
def made(given) -> Path:
    """Vectors, clusters and neighbours as well, and questions with their documents."""
    write_scrolls(given / "scrolls", documents=2)
    raw, tokenizer = given / "scrolls", given / "documents" / "tokenizer"
    functions.documents(input=[raw], format="scrolls", tokenizer=tokenizer, output=given / "read", workers=1)
    for command, name in (("embed", "vectors"), ("cluster", "clusters"), ("neighbours", "neighbours")):
        getattr(functions, command)(**COMMANDS[command](given), output=given / name, workers=1)
    return given


def check_equal(command: str, inputs: Path, folder: Path, counts: tuple[int, ...]) -> None:
    """Compare shards, manifests, rejects and the artefacts of all stages, made by each number of processes."""
    make, options = getattr(functions, command), COMMANDS[command](inputs)
    make(**options, output=folder / "embedded" / "out", workers=1)
    expected = contents(str(folder / "embedded"))
    for count in counts:
        place = folder / str(count)
        with ThreadPoolExecutor(count) as pool:
            shared = [pool.submit(make, **options, output=place / "out", engine="cooperative") for _ in range(count)]
        assert len({process.result().to_json() for process in shared}) == 1
        assert contents(str(place)) == expected
        assert verify(str(place / "out")) == []


@pytest.mark.parametrize("command", ["embed", "corpus_long"])
def test_two_processes_make_the_artefact_of_the_embedded_runner(given, tmp_path, command):
    check_equal(command, given, tmp_path, (2,))


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS])
def test_any_number_of_processes_makes_the_artefact_of_the_embedded_runner(made, tmp_path, command):
    check_equal(command, made, tmp_path, (1, 2, 3))
