"""The public names: light to import, all there, and as the stub types them."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import farspan
from farspan.stub import STUB, render
from pipelines.functions import FUNCTIONS

HEAVY = {"torch", "numba", "numpy", "pyarrow", "apache_beam", "transformers", "faiss", "spacy"}


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_and_listing_loads_nothing_heavy():
    program = f"import sys, farspan; print(len(dir(farspan)), sorted({HEAVY} & set(sys.modules)))"
    assert run(program) == f"{len(farspan.__all__)} []"


def test_a_jobs_help_loads_neither_beam_nor_torch():
    program = "import sys, farspan; farspan.corpus_random.__doc__; print({'torch', 'apache_beam'} & set(sys.modules))"
    assert run(program) == "set()"


def test_every_name_is_there():
    assert set(dir(farspan)) == set(farspan.__all__)
    for name in farspan.__all__:
        assert getattr(farspan, name).__doc__


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'farspan' has no attribute 'open_corpse'$"):
        getattr(farspan, "open_corpse")  # noqa: B009


@pytest.mark.parametrize("package", ["corpora", "objectives", "trainer", "pipelines"])
def test_a_script_with_the_name_of_a_package_is_named(tmp_path, package):
    """Otherwise it runs a second time, as the package, and a name inside it is said to be missing."""
    script = tmp_path / f"{package}.py"
    script.write_text("import farspan\nprint('ran')\nfarspan.Dataset, farspan.mask, farspan.load_objective\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(farspan.__file__).parents[1])}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert ended.stdout == "ran\n"
    assert f"{script} hides farspan's package {package!r}; give that file another name" in ended.stderr


def test_names_are_exported_under_their_own_name():
    """Otherwise type checkers take an import of a stub for private."""
    stub = ast.parse(Path(farspan.__file__).with_suffix(".pyi").read_text("utf-8"))
    aliases = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    defined = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    exported = {alias.name for alias in aliases if alias.name == alias.asname}
    assert exported | defined | {"__version__"} == set(farspan.__all__)
    assert not exported & defined


def test_the_version_is_that_of_the_distribution():
    from corpora.storage.manifest import farspan_version

    assert farspan.__version__ == farspan_version()


GOOD = """
from pathlib import Path
import farspan
from corpora.storage.manifest import Manifest

corpus: Manifest = farspan.corpus_random(
    documents=Path("documents"), sequence_length=4096, split="held-out", output="corpus"
)
farspan.mask("span", preset="t5", set={"density": 0.2}, corpus="corpus", output="masks", workers=2)
farspan.documents(input={"wiki": "text/*.jsonl"}, tokenizer="t", output="d", preprocess=["squeeze"])
farspan.documents(input=[Path("text")], tokenizer="t", output="d", beam_flags=["--x=1"], license=None)
farspan.convert("model", Path("out"), to="huggingface")
folder: Path = farspan.tokenizer_train(vocab_size=400, input="text/*.jsonl", output="tokenizer")
"""
BAD = {
    'farspan.mask("span", corpus="c", output="m", nonsense=3)': 'Unexpected keyword argument "nonsense" for "mask"',
    'farspan.corpus_random(documents="d", output="o")': 'Missing named argument "sequence_length"',
    'farspan.cluster(vectors="v", output="o", centroids="4")': 'has incompatible type "str"; expected "int"',
    'farspan.embed(documents="d", output="o", precision="int4")': "incompatible type \"Literal['int4']\"",
    'farspan.mask("span", "t5", corpus="c", output="m")': 'multiple values for keyword argument "corpus"',
    'farspan.neighbours(clusters=3, output="m")': 'has incompatible type "int"; expected "str | PathLike[str]"',
    'print(farspan.show("masks"))': '"show" does not return a value',
    "farspan.open_corpse": 'has no attribute "open_corpse"',
}


def check(tmp_path: Path, snippet: str) -> list[str]:
    """Return what mypy says of a snippet, with the stub alone of all that it imports."""
    file = tmp_path / "snippet.py"
    file.write_text(snippet)
    options = ["--config-file=", "--follow-imports=skip", "--no-error-summary", "--hide-error-context", "--strict"]
    out, err, _ = api.run([*options, f"--cache-dir={tmp_path / 'cache'}", str(STUB), str(file)])
    return [line for line in (out + err).splitlines() if ": note: " not in line]


def test_the_stub_is_up_to_date():
    assert STUB.read_text("utf-8") == render(), "run `make stub`"


def test_the_functions_of_commands_are_public():
    assert set(FUNCTIONS) < set(farspan.__all__)


def test_right_calls_are_taken(tmp_path: Path):
    assert check(tmp_path, GOOD) == []


def test_wrong_calls_are_named_with_their_keyword(tmp_path: Path):
    found = check(tmp_path, "import farspan\n" + "\n".join(BAD) + "\n")
    assert len(found) == len(BAD), found
    for number, (line, expected) in enumerate(zip(found, BAD.values(), strict=True), 2):
        assert f"snippet.py:{number}: error: " in line
        assert expected in line


@pytest.mark.parametrize("name", ["documents", "mask"])
def test_the_stub_has_the_summary_of_the_command(name: str):
    definition = STUB.read_text("utf-8").partition(f"\ndef {name}(")[2]
    assert f'"""{getattr(farspan, name).__doc__.partition(chr(10))[0]}"""' in definition
