"""Declarations of options; flags, keywords and settings made into dataclasses."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from corpora.errors import FarspanError
from corpora.options import (
    NO_FLAG,
    UNRECORDED,
    Flag,
    add_flags,
    choices,
    examples,
    explanation,
    keyword,
    list_changed,
    list_fields,
    meanings,
    options_of,
    record_options,
)
from corpora.settings import format_assignment, make, parse_assignment


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Nested options.

    Attributes:
        size: number of rows,
            on two lines.
        seed: where it starts.
    """

    size: int = 3
    seed: Annotated[int, UNRECORDED] = 0


@dataclass(frozen=True, kw_only=True)
class Outer(Inner):
    """Options.

    What they are ``for``,
    in two lines.

    And more.

    Attributes:
        kind, other: a word.

    Examples:
        Beginning:
          farspan a
        farspan b
    """

    folder: Annotated[str, Flag(metavar="DIR"), UNRECORDED] = "here"
    kind: Annotated[Literal["a", "b"] | None, Flag(name="sort")] = None
    other: Literal["x"] = "x"
    inner: Inner = field(default_factory=Inner)


def test_manifests_record_what_affects_the_artefact_in_the_order_of_the_fields():
    options = Outer(size=5, kind="b", inner=Inner(size=7, seed=9))
    assert list(record_options(options).items()) == [("size", 7), ("kind", "b"), ("other", "x")]
    assert record_options(options, without=["inner"]) == {"size": 5, "kind": "b", "other": "x"}
    decided = record_options(options, inner=Inner(size=1), kind="a", unknown=2)
    assert list(decided.items()) == [("size", 1), ("kind", "a"), ("other", "x")]


def test_types_flags_and_meanings_of_fields():
    found = list_fields(Outer)
    assert found["folder"] == (str, Flag(metavar="DIR"))
    assert found["seed"] == (int, Flag())
    assert choices(*found["kind"]) == ("a", "b")
    assert choices(str, Flag(choices=("c",))) == ("c",)
    assert meanings(Outer) == {
        "size": "number of rows, on two lines.",
        "seed": "where it starts.",
        "kind": "a word.",
        "other": "a word.",
    }


def test_options_are_the_fields_as_users_name_them():
    assert [(option.name, option.default) for option in options_of(Outer, without=["folder"])] == [
        ("size", 3), ("seed", 0), ("sort", None), ("other", "x"), ("size", 3), ("seed", 0)
    ]  # fmt: skip
    sort = next(option for option in options_of(Outer) if option.name == "sort")
    assert (sort.keyword, sort.choices, sort.required, sort.help()) == ("sort", ("a", "b"), False, "a word.")


def test_text_around_the_flags_is_that_of_the_docstring():
    assert explanation(Outer) == "What they are for,\nin two lines.\n\nAnd more."
    assert examples(Outer) == "Beginning:\n  farspan a\nfarspan b"
    assert (explanation(Inner), examples(Inner)) == ("", "")


def test_given_are_the_flags_of_other_values_than_the_defaults():
    assert list_changed(Outer()) == []
    assert list_changed(Outer(kind="a", seed=2)) == ["--seed", "--sort"]
    assert list_changed(Outer(seed=2, inner=Inner(seed=1, size=4)), without=["seed"]) == ["--size"]


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
        ({"nuts": {"a": 7}}, r"nuts\['a'\] is 7; a value of type str is needed"),
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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("density=0.1", 0.1),
        ("mean_span_lengths=[3, 5]", [3, 5]),
        ("separator=<eos>", "<eos>"),
        ("separator=null", None),
        ("separator = null ", None),
        ("separator='null'", "null"),
        ("separator=nulls", "nulls"),
        ("corpus=a=b", "a=b"),
        ("begin=true", True),
    ],
)
def test_values_are_null_toml_or_a_word(text, value):
    assert parse_assignment(text) == (text.partition("=")[0].strip(), value)


@pytest.mark.parametrize("text", ["density", "=1", " =1", ""])
def test_what_is_no_assignment_is_refused(text):
    with pytest.raises(FarspanError, match="give KEY=VALUE"):
        parse_assignment(text)


@pytest.mark.parametrize(
    "value", [None, True, 0.1, "a=b", 'a "b"', "ü", [3, 5], [["a"], []], {"name": "span", "options": {"density": 0.2}}]
)
def test_what_is_assigned_is_read_back_and_a_path_as_its_text(value):
    assert parse_assignment(format_assignment("data.objective", value)) == ("data.objective", value)
    assert parse_assignment(format_assignment("data.corpus", Path("/a"))) == ("data.corpus", "/a")


def test_absurd_values_are_refused_or_text():
    with pytest.raises(FarspanError, match=r"--set a=\.\.\.: its brackets are nested too deep"):
        parse_assignment("a=" + "[" * 60_000)
    assert parse_assignment("a=" + "1" * 5000) == ("a", "1" * 5000)
