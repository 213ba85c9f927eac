"""Checks of options: the values that each takes, and the remedy that it names for others."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from corpora.errors import FarspanError
from objectives.api.options import (
    check_chances,
    check_choice,
    check_flag,
    check_global_attention,
    check_numbers,
    check_whole,
    equipped,
    is_number,
    is_share,
    normalize,
    options_of,
)
from objectives.api.protocol import Tools


@dataclass(frozen=True)
class Toy:
    """An objective with one option of each kind."""

    value: object = None
    separator: str | None = "<doc-sep>"
    global_attention: str = "none"
    name: str = field(default="toy", init=False)
    _tools: Tools | None = field(default=None, init=False)


CHECKS = {
    "choice": lambda toy: check_choice(toy, "value", "up", "down", None),
    "flag": lambda toy: check_flag(toy, "value"),
    "whole": lambda toy: check_whole(toy, "value", 2),
    "whole or null": lambda toy: check_whole(toy, "value", 2, null=True),
    "numbers": lambda toy: check_numbers(toy, "value", 1),
    "chances": lambda toy: check_chances(toy, "value", "mask", "keep"),
}
INFINITE, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("check", "sound", "unsound", "remedy"),
    [
        ("choice", ["up", "down", None], ["Up", "", 0], "up, down or null"),
        ("flag", [True, False], [1, 0, None, "true"], "true or false"),
        ("whole", [2, 10**9], [1, 2.0, True, None, "2", NAN], "a whole number from 2 up"),
        ("whole or null", [2, None], [1, 2.0, False], "a whole number from 2 up, or null"),
        ("numbers", [1, 1.5, [1, 2.5], (3,)], [0.5, [], [1, 0], [INFINITE], NAN, True, "1", None], "a number from 1"),
        ("chances", [[0.25, 0.75], (1, 0)], [[1], [0.5, 0.6], [1.5, -0.5], [NAN, 1], 1, None], "2 numbers that add up"),
    ],
)
def test_sound_values_pass_and_others_are_refused_with_the_remedy(check, sound, unsound, remedy):
    for value in sound:
        CHECKS[check](Toy(value))
    for value in unsound:
        with pytest.raises(FarspanError, match=f"^toy: option value is .*; give {remedy}"):
            CHECKS[check](Toy(value))


def test_numbers_and_chances_become_tuples_of_floats():
    assert check_numbers(Toy(5), "value", 1) == check_numbers(Toy([5]), "value", 1) == (5.0,)
    assert check_chances(Toy([1, 0]), "value", "mask", "keep") == (1.0, 0.0)
    toy = Toy(5)
    normalize(toy, value=(5.0, (1.0, 2.0)))
    assert options_of(toy) == {"value": [5.0, [1.0, 2.0]], "separator": "<doc-sep>", "global_attention": "none"}
    assert json.loads(json.dumps(options_of(toy))) == options_of(toy)


@pytest.mark.parametrize(("rule", "separator", "sound"), [
    ("separators", "<doc-sep>", True), ("separators", None, False), ("bos", None, True), ("every", "<doc-sep>", False),
])  # fmt: skip
def test_global_attention_at_separators_needs_them(rule, separator, sound):
    toy = Toy(None, separator, rule)
    if sound:
        check_global_attention(toy)
        return
    with pytest.raises(FarspanError, match=r"^toy: option global_attention is"):
        check_global_attention(toy)


@pytest.mark.parametrize(
    ("value", "number", "share"),
    [(0, True, False), (0.5, True, True), (1, True, False), (True, False, False), (NAN, False, False),
    ("1", False, False)],
)  # fmt: skip
def test_numbers_and_shares(value, number, share):
    assert (is_number(value), is_share(value)) == (number, share)


def test_a_copy_holds_the_tools_and_the_original_does_not():
    toy, tools = Toy(3), Tools(tokenizer=None)
    held = equipped(toy, tools)
    assert (held._tools, toy._tools) == (tools, None)
    assert options_of(held) == options_of(toy)
