"""Commands: their arguments from dataclasses, and what they are called with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest

from corpora.errors import FarspanError
from corpora.options import Flag, utf8
from corpora.storage.stores import s3
from pipelines.commands.command import Command, Parser, refuse_rest, use_store_flags


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


called: list[Outer] = []


def work(options: Outer) -> None:
    called.append(options)


HERE = "tests.pipelines.commands.test_command"
LOOK = Command(name="look", summary="Look.", run=f"{HERE}:work", options=(f"{HERE}:Outer",), flags="s3")


def parsed(*words: str):
    parser = Parser(prog="farspan look", command=LOOK)
    typed, rest = parser.parse_known_args(list(words))
    typed.parser = parser
    return typed, rest


def test_a_function_is_called_with_the_options(monkeypatch):
    monkeypatch.setattr(f"{HERE}.called", [])
    typed, _ = parsed("a", "b", "--name", "x", "--name", "y", "--size", "7")
    LOOK.execute(typed, LOOK.made(typed))
    assert called == [Outer(folders=("a", "b"), names=("x", "y"), inner=Inner(size=7))]


def test_arguments_without_dashes_are_one_or_more(capsys):
    with pytest.raises(SystemExit):
        parsed("--size", "7")
    assert "required: folders" in capsys.readouterr().err


def test_flags_of_stores_reach_the_client_and_others_are_refused(monkeypatch):
    found = []
    monkeypatch.setattr(s3, "use_settings", found.append)
    typed, rest = parsed("a", "--s3_endpoint_url=http://here", "--s3_region_name", "x", "--sise", "4")
    others = use_store_flags(rest)
    assert found == [{"s3_endpoint_url": "http://here", "s3_region_name": "x"}]
    with pytest.raises(FarspanError, match=r"--sise: unknown argument \(did you mean '--size'\?\); see farspan look"):
        refuse_rest(typed, others)
