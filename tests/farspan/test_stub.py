"""``farspan/__init__.pyi``: up to date, and what a type checker says of calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

import farspan
from farspan.stub import STUB, render
from pipelines.functions import FUNCTIONS

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
