"""Command-line flags made from option dataclasses."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import MISSING
from types import NoneType
from typing import Any, get_args, get_origin

from corpora.options import Option, options_of


def add_flags(parser: Any, kind: type) -> None:
    """Add a flag to a parser, or to a group of it, for each option of ``kind``.

    A flag that the parser already has is shared: it sets the fields of all dataclasses that declare it.
    """
    groups: dict[Any, Any] = {}
    for option in options_of(kind):
        if option.group and option.group not in groups:
            groups[option.group] = parser.add_argument_group(*option.group)
        if f"--{option.name}" not in parser._option_string_actions:
            _add(groups.get(option.group, parser), option)


def _add(parser: Any, option: Option) -> None:
    hint, flag, required = option.hint, option.flag, option.required
    default = None if required else option.default
    details: dict[str, Any] = {"help": argparse.SUPPRESS if flag.hidden else explain(option).replace("%", "%%")}
    if hint is bool:
        details |= {"action": "store_true"}
    elif flag.positional and get_origin(hint) is tuple:
        details |= {"nargs": "+" if required else "*"}
    elif flag.positional and not required:
        details |= {"nargs": "?"}
    elif get_origin(hint) in (tuple, Mapping):
        details |= {"action": "append", "type": flag.convert, "metavar": flag.metavar}
        details |= {"default": None if required else []}
        details |= {"action": "extend", "nargs": "+"} if flag.several else {}
        details |= {"action": "extend", "type": whole_numbers} if flag.separated else {}
    else:
        plain = next((part for part in get_args(hint) if part is not NoneType), hint)
        details |= {"type": flag.convert or (str if option.choices else plain), "default": default}
        details |= {"choices": option.choices} if option.choices else {"metavar": flag.metavar}
    if flag.positional:
        details.pop("default", None)
        parser.add_argument(option.keyword, **details)
    else:
        parser.add_argument(f"--{option.name}", required=required, **details)


def whole_numbers(text: str) -> list[int]:
    """Convert numbers separated by commas."""
    return [int(part) for part in text.split(",")]


def explain(option: Option) -> str:
    """Return the help of an option, with its default unless there is none to show or the text states it."""
    text = option.help().replace("``", "").removesuffix(".")
    complete = isinstance(option.default, bool) or option.default in (None, (), {}, MISSING) or "(default" in text
    return text if complete else f"{text} (default: {option.default})"
