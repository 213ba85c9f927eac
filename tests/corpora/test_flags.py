"""Flags from dataclasses, and back, also from Python keywords: types, defaults, choices, shared flags, and help."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.flags import add_flags
from corpora.options import NO_FLAG, Flag, keyword, meanings
from corpora.settings import make


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


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(made, Cake)
    return made


def test_what_is_not_typed_is_the_default(parser):
    flags = parser.parse_args(["sachertorte", "--size", "3"])
    assert make(Cake, vars(flags)) == Cake(name="sachertorte", oven=Oven(), size=3.0)
    assert make(Cake, {"name": "sachertorte", "size": 3}) == Cake(name="sachertorte", oven=Oven(), size=3.0)


WORDS = "x --size 2 --layers 3 --icing pink --nuts a --nuts b --set k=[1] --set n=null --degrees 9 --still"
KEYWORDS = {
    "name": Path("x"),
    "size": np.float32(2),
    "layers": np.int64(3),
    "icing": "pink",
    "nuts": ["a", Path("b")],
    "set": {"k": [1], "n": None},
    "degrees": 9,
    "still": True,
}


@pytest.mark.parametrize("values", [WORDS, KEYWORDS])
def test_every_kind_of_field_is_read_back(parser, values):
    flags = vars(parser.parse_args(values.split())) if isinstance(values, str) else values
    assert make(Cake, flags) == Cake(
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
    typed = vars(parser.parse_args("x --size 1 --degrees 5 --grill".split()))
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"icing": "pnik"}, r"icing is 'pnik' \(did you mean 'pink'\?\); choose one of 'white', 'pink'"),
        ({"icing": ["pink"]}, r"icing is \['pink'\]; choose one of 'white', 'pink'"),
        ({"layers": 2.5}, "layers is 2.5; a value of type int is needed"),
        ({"layers": True}, "layers is True; a value of type int is needed"),
        ({"layers": "2"}, "layers is '2'; a value of type int is needed"),
        ({"size": None}, "size is null; a value of type float is needed"),
        ({"size": math.nan}, "size is nan; a number is needed"),
        ({"still": "no"}, "still is 'no'; a value of type bool is needed"),
        ({"name": 7}, "name is 7; a value of type str is needed"),
        ({"nuts": 7}, "nuts is 7; a list of values is needed"),
        ({"nuts": ["a", 7]}, r"nuts\[1\] is 7; a value of type str is needed"),
        ({"set": ["k"]}, "set k: give KEY=VALUE"),
        ({"set": 7}, "set is 7; a value of type dict is needed"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_option(values, message):
    given = {"name": "x", "size": 1, **values}
    with pytest.raises(FarspanError, match=f"^{message}"):
        make(Cake, given, keyword)
    with pytest.raises(FarspanError, match=f"^--{message}"):
        make(Cake, given)


def test_a_mapping_names_the_values_of_a_repeated_option():
    assert make(Cake, {"name": "x", "size": 1, "nuts": {"a": Path("b"), "c": "d=e"}}).nuts == ("a=b", "c=d=e")
    assert make(Cake, {"name": "x", "size": 1, "nuts": "walnut"}).nuts == ("walnut",)
