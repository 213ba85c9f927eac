"""The table of commands: each entry can be imported, and the examples in its help are commands."""

from __future__ import annotations

import re
import shlex

import pytest

from corpora.options import examples
from pipelines.commands import build_parser
from pipelines.commands.command import Command, load
from pipelines.commands.table import COMMANDS


def written_examples() -> list[str]:
    text = "\n".join(examples(kind) for command in COMMANDS for kind in command.kinds())
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    return [line.strip().partition("  (")[0] for line in lines if line.strip().startswith("farspan ")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_functions_and_options_are_where_the_table_says(command: Command):
    assert callable(load(command.run))
    assert all(kind.__doc__ for kind in command.kinds())


def test_examples_are_commands_with_all_that_is_required():
    found = written_examples()
    assert len(found) > 30
    for example in found:
        words = shlex.split(example.partition(" > ")[0])[1:]
        _, rest = build_parser().parse_known_args(words)
        assert rest == [], example
