"""Commands: their arguments from dataclasses, and errors in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from corpora.options import Flag, utf8
from pipelines.commands.command import Command, Parser


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


HERE = "tests.pipelines.commands.test_command"
LOOK = Command(name="look", summary="Look.", run=f"{HERE}:parsed", options=(f"{HERE}:Outer",), flags="s3")


def parsed(*words: str):
    return Parser(prog="farspan look", command=LOOK).parse_known_args(list(words))


def test_arguments_without_dashes_are_one_or_more(capsys):
    with pytest.raises(SystemExit):
        parsed("--size", "7")
    assert "required: folders" in capsys.readouterr().err
