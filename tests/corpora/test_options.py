"""Declarations of options: flags, help and what manifests record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from corpora.options import (
    UNRECORDED,
    Flag,
    choices,
    declared,
    examples,
    explanation,
    given,
    meanings,
    options_of,
    recorded,
)


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
    assert list(recorded(options).items()) == [("size", 7), ("kind", "b"), ("other", "x")]
    assert recorded(options, without=["inner"]) == {"size": 5, "kind": "b", "other": "x"}
    decided = recorded(options, inner=Inner(size=1), kind="a", unknown=2)
    assert list(decided.items()) == [("size", 1), ("kind", "a"), ("other", "x")]


def test_types_flags_and_meanings_of_fields():
    found = declared(Outer)
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
    assert given(Outer()) == []
    assert given(Outer(kind="a", seed=2)) == ["--seed", "--sort"]
    assert given(Outer(seed=2, inner=Inner(seed=1, size=4)), without=["seed"]) == ["--size"]
