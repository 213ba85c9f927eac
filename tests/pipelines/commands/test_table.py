"""The table of commands: each entry can be imported, and the examples in its help are commands."""

from __future__ import annotations

import math
import re
import shlex

import pytest

from corpora.errors import FarspanError
from corpora.options import Option, examples, options_of
from corpora.reporting import Reporting
from corpora.settings import make
from pipelines.commands import build_parser
from pipelines.commands.command import Command, load
from pipelines.commands.table import COMMANDS
from pipelines.engine.options import Engine


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
