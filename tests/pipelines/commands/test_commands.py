"""Commands: the table, arguments from dataclasses, mistyped ones, explanations and completion."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from corpora.errors import FarspanError
from corpora.options import Flag, Option, examples, options_of, utf8
from corpora.reporting import Reporting
from corpora.settings import make
from pipelines.commands import build_parser
from pipelines.commands.command import Command, Parser, load
from pipelines.commands.table import COMMANDS
from pipelines.engine.options import Engine
from tests.artefacts import make_documents


def written_examples() -> list[str]:
    text = "\n".join(examples(kind) for command in COMMANDS for kind in command.kinds())
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    return [line.strip().partition("  (")[0] for line in lines if line.strip().startswith("farspan ")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_functions_and_options_are_where_the_table_says(command: Command):
    assert callable(load(command.run))
    assert all(kind.__doc__ for kind in command.kinds())


KINDS = {kind for command in COMMANDS for kind in command.kinds()} | {Engine, Reporting}
NEEDED = {"documents": "d", "output": "o", "sequence_length": 4096, "input": ["x"], "objective": "span", "corpus": "c"}
CHOICES = [(kind, option) for kind in sorted(KINDS, key=repr) for option in options_of(kind) if option.choices]


@pytest.mark.parametrize(("kind", "option"), CHOICES, ids=lambda part: getattr(part, "__name__", None) or part.name)
def test_a_word_that_is_none_of_an_options_choices_is_refused(kind: type, option: Option):
    message = rf"^--{option.name} is 'nothing'(?: \(did you mean .*\))?; choose one of {option.choices[0]!r}, "
    with pytest.raises(FarspanError, match=message):
        make(kind, {**NEEDED, option.keyword: "nothing"})


RANGES = [
    (kind, option, end)
    for kind in sorted(KINDS, key=repr)
    for option in options_of(kind)
    for end in (option.flag.least - 1, option.flag.most + 1)
    if math.isfinite(end)
]


@pytest.mark.parametrize(("kind", "option", "value"), RANGES, ids=lambda part: getattr(part, "name", None))
def test_a_number_outside_an_options_range_is_refused(kind: type, option: Option, value: float):
    message = rf"^--{option.name} {value}(?:\.0)?: give a number (?:of at least|from) "
    with pytest.raises(FarspanError, match=message):
        make(kind, {**NEEDED, option.keyword: value})


def test_options_with_a_range_are_many():
    assert {"k", "threads", "shards", "bins", "task-files", "smooth", "port", "rows", "max-record-bytes"} < {
        option.name for _, option, _ in RANGES
    }


def test_options_with_choices_are_many():
    assert {"policy", "order", "budget", "leftovers", "precision", "pooling", "device", "kind"} < {
        option.name for _, option in CHOICES
    }


def test_examples_are_commands_with_all_that_is_required():
    found = written_examples()
    assert len(found) > 30
    for example in found:
        words = shlex.split(example.partition(" > ")[0])[1:]
        _, rest = build_parser().parse_known_args(words)
        assert rest == [], example


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Options.

    Attributes:
        size: how many.
    """

    size: int = 3


@dataclass(frozen=True, kw_only=True)
class Outer:
    """Options.

    Attributes:
        folders: what is looked at.
        names: repeated.
        inner: others.
    """

    folders: Annotated[tuple[str, ...], Flag(positional=True)]
    names: Annotated[tuple[str, ...], Flag(name="name", convert=utf8)] = ()
    inner: Inner = field(default_factory=Inner)


HERE = "tests.pipelines.commands.test_commands"
LOOK = Command(name="look", summary="Look.", run=f"{HERE}:parsed", options=(f"{HERE}:Outer",), flags="s3")


def parsed(*words: str):
    return Parser(prog="farspan look", command=LOOK).parse_known_args(list(words))


def test_arguments_without_dashes_are_one_or_more(capsys):
    with pytest.raises(SystemExit):
        parsed("--size", "7")
    assert "required: folders" in capsys.readouterr().err


def test_a_misspelt_flag_is_an_error_that_suggests(run, tmp_path):
    documents = make_documents(str(tmp_path / "documents"))
    base = ["corpus", "random", "--documents", documents, "--sequence-length", "256", "--output", tmp_path / "c"]
    status, _, err = run(*base, "--direct_num_worker=2")
    assert status == 1
    assert "did you mean '--direct_num_workers'" in err
    status, _, err = run("verify", documents, "--fast")
    assert status == 1
    assert "--fast" in err
    status, _, err = run("verify", documents, "--corpse", "x")
    assert (status, "did you mean '--corpus'" in err) == (1, True)
    assert not (tmp_path / "c").exists()


def test_an_objective_is_explained_with_options_and_presets(run):
    status, out, err = run("mask", "principal_sentences", "--options")
    assert (status, err) == (0, "")
    for words in (
        "strategy: selection of a text's sentences",
        "ratio = 0.3",
        "pegasus: ",
        "ratio=[0.1485, 0.45]",
        "target_length = null",
    ):
        assert words in out
    status, out, err = run("mask", "principal", "--options")
    assert (status, out) == (1, "")
    assert "did you mean 'principal_sentences'?" in err
    status, out, _ = run("mask", "--options")
    assert "name the objective first" in out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_flags_and_choices(run, shell):
    status, out, _ = run("completion", shell)
    assert status == 0
    for word in ("check-objective", "best-fit", "held-out"):
        assert word in out
