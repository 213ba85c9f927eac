"""Flags from dataclasses, and back: types, defaults, choices, shared flags, and help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from corpora.errors import FarspanError
from corpora.flags import add_flags, make
from corpora.options import NO_FLAG, Flag, check_choices, meanings


@dataclass(frozen=True, kw_only=True)
class Oven:
    """An oven.

    Attributes:
        degrees: temperature; 100 % is hot,
            or so.
        grill: heat from above.
        fan: blow.
    """

    degrees: int = 180
    grill: bool = False
    fan: Annotated[bool, Flag(name="still", help="do not blow")] = True


@dataclass(frozen=True, kw_only=True)
class Cake:
    """A cake.

    Attributes:
        name: what it is called
        oven: the oven
        size, layers: of the cake
        nuts: repeatable
        extras: anything
        secret: for programs

    Raises:
        FarspanError: never here.
    """

    name: Annotated[str, Flag(positional=True)]
    oven: Annotated[Oven, Flag(without=("grill",))]
    size: float
    layers: int | None = None
    icing: Annotated[Literal["white", "pink"] | None, Flag(help="colour (default: none)")] = None
    nuts: tuple[str, ...] = ()
    extras: Annotated[Mapping[str, Any], Flag(name="set")] = field(default_factory=dict)
    secret: Annotated[int, NO_FLAG] = 7

    def __post_init__(self) -> None:
        check_choices(self)


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(made, Cake)
    return made


def test_what_is_not_typed_is_the_default(parser):
    assert make(Cake, parser.parse_args(["sachertorte", "--size", "3"])) == Cake(
        name="sachertorte", oven=Oven(), size=3.0
    )


def test_every_kind_of_field_is_read_back(parser):
    words = "x --size 2 --layers 3 --icing pink --nuts a --nuts b --set k=[1] --set n=null --degrees 9 --still"
    assert make(Cake, parser.parse_args(words.split())) == Cake(
        name="x",
        oven=Oven(degrees=9, fan=False),
        size=2.0,
        layers=3,
        icing="pink",
        nuts=("a", "b"),
        extras={"k": [1], "n": None},
    )


@pytest.mark.parametrize("words", ["x", "--size 1", "x --size 1 --icing blue", "x --size 1 --layers a"])
def test_what_is_missing_or_of_another_kind_is_refused(parser, words):
    with pytest.raises(SystemExit):
        parser.parse_args(words.split())


@pytest.mark.parametrize("flag", ["--grill", "--secret", "--oven", "--fan"])
def test_some_fields_have_no_flag_of_their_own(parser, flag):
    assert parser.parse_known_args(["x", "--size", "1", flag])[1] == [flag]


def test_a_flag_of_two_dataclasses_sets_both_and_given_values_come_first(parser):
    add_flags(parser, Oven)
    assert "--grill" in parser._option_string_actions
    typed = parser.parse_args("x --size 1 --degrees 5 --grill".split())
    assert make(Oven, typed) == Oven(degrees=5, grill=True)
    assert make(Cake, typed).oven == Oven(degrees=5)
    assert make(Cake, typed, oven=Oven(degrees=1)).oven.degrees == 1


def test_help_is_the_docstring_and_the_default(parser):
    text = " ".join(parser.format_help().split())
    for words in ("temperature; 100 % is hot, or so (default: 180)", "--size SIZE of the cake", "do not blow --"):
        assert words.removesuffix(" --") in text
    assert "default: none)" in text
    assert text.count("(default") == 2, text
    assert "FarspanError" not in meanings(Cake)


def test_a_word_that_is_no_choice_is_refused():
    with pytest.raises(FarspanError, match="--icing 'blue': choose one of white, pink"):
        Cake(name="x", oven=Oven(), size=1, icing="blue")
