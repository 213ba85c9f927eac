"""Checks and conversions of objectives' options, which are fields of frozen dataclasses with JSON values."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import fields
from typing import Any, TypeVar

from corpora.errors import FarspanError
from corpora.settings import format_value
from objectives.api.protocol import Tools
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, END

Equipped = TypeVar("Equipped")

FITS = ("error", "reduce", "window")
"""Choices of an option ``fit``, beside ``target_length``: what happens to rows that may need more positions."""


def check(objective: Any, option: str, valid: bool, wanted: str) -> None:
    """Raise an error for an option unless ``valid``."""
    if not valid:
        raise FarspanError(
            f"{objective.name}: option {option} is {format_value(getattr(objective, option))}; give {wanted}"
        )


def check_choice(objective: Any, option: str, *choices: str | None) -> None:
    """Check that the option is one of ``choices``; None is spelled null, as on the command line and in recipes."""
    spelled = [choice or "null" for choice in choices]
    wanted = ", ".join(spelled[:-1]) + " or " * (len(spelled) > 1) + spelled[-1]
    check(objective, option, getattr(objective, option) in choices, wanted)


def check_flag(objective: Any, *options: str) -> None:
    """Check that each option is true or false."""
    for option in options:
        check(objective, option, isinstance(getattr(objective, option), bool), "true or false")


def check_layout(objective: Any) -> None:
    """Check ``begin``, ``separator`` and ``global_attention``, of which rule ``separators`` requires a separator."""
    check_flag(objective, "begin")
    check_choice(objective, "separator", DOCUMENT_SEPARATOR, END, None)
    check_choice(objective, "global_attention", "none", "bos", "separators", "masked")
    impossible = objective.global_attention == "separators" and objective.separator is None
    check(objective, "global_attention", not impossible, f"bos, or separator={DOCUMENT_SEPARATOR} beside it")


def check_whole(objective: Any, option: str, least: int, null: bool = False) -> None:
    """Check that the option is an integer of at least ``least``, or with ``null`` possibly None."""
    value = getattr(objective, option)
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= least
    check(objective, option, valid or (null and value is None), f"a whole number from {least} up{', or null' * null}")


def check_numbers(objective: Any, option: str, least: float) -> tuple[float, ...]:
    """Check that the option is a number of at least ``least``, or a list of such numbers; return a tuple of floats."""
    value = getattr(objective, option)
    numbers = value if isinstance(value, list | tuple) else [value]
    valid = len(numbers) > 0 and all(is_number(number) and number >= least for number in numbers)
    check(objective, option, valid, f"a number from {least} up, or a list of them")
    return tuple(map(float, numbers))


def check_chances(objective: Any, option: str, *events: str) -> tuple[float, ...]:
    """Check that the option gives the probabilities of ``events``, which add up to 1; return a tuple of floats."""
    chances = getattr(objective, option)
    valid = isinstance(chances, list | tuple) and len(chances) == len(events)
    valid = valid and all(is_number(chance) and chance >= 0 for chance in chances)
    wanted = f"{len(events)} numbers that add up to 1: the chances of {', '.join(events)}"
    check(objective, option, valid and abs(sum(chances) - 1) < 1e-9, wanted)
    return tuple(map(float, chances))


def is_number(value: object) -> bool:
    """Return True for a finite int or float that is not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_share(value: object) -> bool:
    """Return True for a number strictly between 0 and 1."""
    return is_number(value) and 0 < value < 1  # type: ignore[operator]


def normalize(objective: Any, **values: Any) -> None:
    """Set options of a frozen dataclass to normal forms, so that 5, [5] and [5.0] give the same masks."""
    for option, value in values.items():
        object.__setattr__(objective, option, value)


def options_of(objective: Any) -> dict[str, Any]:
    """Return every option of a dataclass as a JSON value; tuples become lists."""
    values = {field.name: getattr(objective, field.name) for field in fields(objective) if field.init}
    return {name: _as_list(value) for name, value in values.items()}


def _as_list(value: Any) -> Any:
    return [_as_list(item) for item in value] if isinstance(value, tuple) else value


def equipped(objective: Equipped, tools: Tools) -> Equipped:
    """Copy a frozen dataclass with ``tools`` in its field ``_tools``, which is not an option."""
    held = copy(objective)
    object.__setattr__(held, "_tools", tools)
    return held
