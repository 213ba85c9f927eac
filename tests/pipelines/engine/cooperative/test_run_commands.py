"""Every command that makes an artefact has the embedded runner's bytes when one, two or three processes share it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipelines import functions
from pipelines.inspect.verify import verify
from tests.artefacts import make_documents
from tests.pipelines.corpus.mixture_files import write_mixture_file
from tests.pipelines.pairs.raw import write_scrolls
from tests.tiny_encoder import make_encoder

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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_equal(command: str, inputs: Path, folder: Path, counts: tuple[int, ...]) -> None:
    """Compare shards, manifests, rejects and the artefacts of all stages, made by each number of processes."""
    make, options = getattr(functions, command), COMMANDS[command](inputs)
    make(**options, output=folder / "embedded" / "out", workers=1)
    expected = contents(folder / "embedded")
    for count in counts:
        place = folder / str(count)
        with ThreadPoolExecutor(count) as pool:
            shared = [pool.submit(make, **options, output=place / "out", engine="cooperative") for _ in range(count)]
        assert len({process.result().to_json() for process in shared}) == 1
        assert contents(place) == expected
        assert verify(str(place / "out")) == []


@pytest.mark.parametrize("command", ["embed", "corpus_long"])
def test_two_processes_make_the_artefact_of_the_embedded_runner(given, tmp_path, command):
    check_equal(command, given, tmp_path, (2,))


@pytest.mark.slow
@pytest.mark.parametrize("command", [*COMMANDS])
def test_any_number_of_processes_makes_the_artefact_of_the_embedded_runner(made, tmp_path, command):
    check_equal(command, made, tmp_path, (1, 2, 3))
