"""Running of a parsed command: its function, its options, and the flags that it does not declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from corpora.errors import FarspanError
from corpora.options import Flag
from corpora.storage.stores import s3
from pipelines.commands.command import Command, Parser
from pipelines.engine.options import use_store_flags
from pipelines.execute import refuse_rest, run


@dataclass(frozen=True, kw_only=True)
class Looking:
    """Options.

    Attributes:
        folders: what is looked at.
        size: how many.
    """

    folders: Annotated[tuple[str, ...], Flag(positional=True)]
    size: int = 3


called: list[Looking] = []


def look(options: Looking) -> None:
    called.append(options)


HERE = "tests.pipelines.test_execute"
LOOK = Command(name="look", summary="Look.", run=f"{HERE}:look", options=(f"{HERE}:Looking",), flags="s3")


def parsed(*words: str):
    flags, rest = Parser(prog="farspan look", command=LOOK).parse_known_args(list(words))
    return LOOK, vars(flags), rest


def test_a_function_is_called_with_the_options(monkeypatch):
    monkeypatch.setattr(f"{HERE}.called", [])
    run(*parsed("a", "b", "--size", "7"))
    assert called == [Looking(folders=("a", "b"), size=7)]


def test_nothing_is_called_with_an_unknown_flag(monkeypatch):
    monkeypatch.setattr(f"{HERE}.called", [])
    with pytest.raises(FarspanError, match="--sise"):
        run(*parsed("a", "--sise", "4"))
    assert called == []


def test_flags_of_stores_reach_the_client_and_others_are_refused(monkeypatch):
    found = []
    monkeypatch.setattr(s3, "use_settings", found.append)
    _, _, rest = parsed("a", "--s3_endpoint_url=http://here", "--s3_region_name", "x", "--sise", "4")
    others = use_store_flags(rest)
    assert found == [{"s3_endpoint_url": "http://here", "s3_region_name": "x"}]
    with pytest.raises(FarspanError, match=r"--sise: unknown argument \(did you mean '--size'\?\); see farspan look"):
        refuse_rest(LOOK, others)
