"""Command-line flags made from option dataclasses, and the dataclasses built from parsed flags."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

from corpora.options import NO_FLAG, Flag, choices, declared, meanings
from corpora.settings import assignment

Options = TypeVar("Options")


def add_flags(parser: Any, kind: type, without: Sequence[str] = ()) -> None:
    """Add a flag to a parser, or to a group of it, for each field of ``kind`` and of the dataclasses among its fields.

    Required fields come first. A flag that the parser already has is shared: it sets the fields of all dataclasses that
    declare it.

    Args:
        without: fields that get no flag.
    """
    help_of, hints = meanings(kind), declared(kind)
    for field in sorted(fields(kind), key=lambda field: not _required(field)):
        hint, flag = hints[field.name]
        if field.name in without or flag is NO_FLAG:
            continue
        text = (flag.help if isinstance(flag.help, str) else flag.help()) or help_of[field.name]
        if is_dataclass(hint):
            place = parser.add_argument_group(flag.group, text.removesuffix(".")) if flag.group else parser
            add_flags(place, hint, flag.without)  # type: ignore[arg-type]
        elif f"--{_dashed(field.name, flag)}" not in parser._option_string_actions:
            _add(parser, field, hint, flag, text)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _add(parser: Any, field: Field[Any], hint: Any, flag: Flag, text: str) -> None:
    required = _required(field)
    default = None if field.default is MISSING else field.default
    given: dict[str, Any] = {"help": argparse.SUPPRESS if flag.hidden else _help(text, default)}
    if hint is bool:
        given |= {"action": "store_true"}
    elif flag.positional and get_origin(hint) is tuple:
        given |= {"nargs": "+" if required else "*"}
    elif flag.positional and not required:
        given |= {"nargs": "?"}
    elif get_origin(hint) in (tuple, Mapping):
        given |= {
            "action": "append",
            "type": flag.convert,
            "default": None if required else [],
            "metavar": flag.metavar,
        }
        given |= {"action": "extend", "nargs": "+"} if flag.several else {}
    else:
        plain = next((part for part in get_args(hint) if part is not NoneType), hint)
        known = choices(hint, flag)
        given |= {"type": flag.convert or (str if known else plain), "default": default}
        given |= {"choices": known} if known else {"metavar": flag.metavar}
    if flag.positional:
        parser.add_argument(field.name, **{k: v for k, v in given.items() if k != "default"})
    else:
        parser.add_argument(f"--{_dashed(field.name, flag)}", required=required, **given)


def _help(text: str, default: Any) -> str:
    """Return the help of a flag, with its default unless there is none to show or the text states it."""
    text = text.replace("``", "").replace("%", "%%").removesuffix(".")
    complete = isinstance(default, bool) or default in (None, ()) or "(default" in text
    return text if complete else f"{text} (default: {default})"


def make(kind: type[Options], typed: argparse.Namespace, without: Sequence[str] = (), **given: Any) -> Options:
    """Build ``kind`` from parsed flags; fields without a flag keep their defaults.

    Args:
        without: fields that keep their defaults because a flag of that name means something else.
        given: values of fields, in place of parsed ones.
    """
    values = dict(given)
    for name, (hint, flag) in declared(kind).items():
        dest = _dashed(name, flag).replace("-", "_")
        if name in given or name in without or flag is NO_FLAG:
            continue
        if is_dataclass(hint):
            values[name] = make(hint, typed, flag.without)  # type: ignore[arg-type]
        elif hasattr(typed, dest):
            values[name] = _value(hint, getattr(typed, dest), f"--{_dashed(name, flag)}")
            if hint is bool and getattr(kind, name):  # the flag switches it off, as --euclidean does for spherical
                values[name] = not values[name]
    return kind(**values)


def _value(hint: Any, typed: Any, flag: str) -> Any:
    if get_origin(hint) is Mapping:
        return dict(assignment(text, flag) for text in typed)
    return tuple(typed) if get_origin(hint) is tuple else typed


def _dashed(name: str, flag: Flag) -> str:
    return flag.name or name.replace("_", "-")
