"""Options declared once: a frozen dataclass gives each its type, default and meaning.

Flags with their help (``add_flags``), Python keywords and TOML keys are derived from the fields, the text around
the flags from the docstring; ``corpora.settings`` makes the dataclass from any of them. Imports no large library, so
that help is printed at once.
"""

from __future__ import annotations

import argparse
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Annotation of a field whose flag differs from ``--field-name`` with the help of the docstring."""

    name: str = ""  # of the flag without dashes; empty for the field's name
    metavar: str | None = None  # placeholder of the value in the help
    help: str | Callable[[], str] = ""  # or a function that returns it; empty for the entry under ``Attributes:``
    convert: Callable[[str], Any] | None = None  # from the text of the command line, in place of the field's type
    positional: bool = False  # True for an argument without dashes
    several: bool = False  # True for a flag that takes one or more values at once; a repeated one adds to them
    separated: bool = False  # True for whole numbers, separated by commas; a repeated flag adds to them
    choices: tuple[str, ...] = ()  # words that it accepts, if they are computed; else a ``Literal`` type lists them
    hidden: bool = False  # True to leave the flag out of the help and of the Python function's keywords
    without: tuple[str, ...] = ()  # fields of a nested dataclass that get no flag
    group: str = ""  # title under which the help lists the flags of a nested dataclass, with the field's meaning
    least: float = -math.inf
    most: float = math.inf
    bare: Any = None  # value of the flag when it is given without one; None for a flag that needs a value


NO_FLAG = Flag()  # annotates a field that only programs set
UNRECORDED = object()  # annotates a field that does not affect the artefact, or that its manifest names elsewhere


def list_fields(kind: type) -> Mapping[str, tuple[Any, Flag]]:
    """Return the type of each field of a dataclass, stripped of ``Annotated``, and its ``Flag``."""
    return _read_fields(kind)


@cache
def _read_fields(kind: Any) -> Mapping[str, tuple[Any, Flag]]:
    hints = _read_hints(kind)
    return {field.name: _unwrap(hints[field.name]) for field in fields(kind)}


@cache
def _read_hints(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _unwrap(hint: Any) -> tuple[Any, Flag]:
    if get_origin(hint) is not Annotated:
        return hint, Flag()
    kind, *notes = get_args(hint)
    return kind, next((note for note in notes if isinstance(note, Flag)), Flag())


class Option(NamedTuple):
    """A field as users see it: a flag of the command line, and a keyword in Python."""

    name: str  # of the flag without dashes in front
    hint: Any  # type of the field
    flag: Flag  # annotation of the field
    default: Any  # ``MISSING`` if a value is required
    meaning: str  # entry of the field in the docstring
    group: tuple[str, str] | None  # title and explanation of its group in the help

    @property
    def keyword(self) -> str:
        """Name of the keyword in Python, and of the attribute that argparse sets."""
        return keyword(self.name)

    @property
    def choices(self) -> tuple[Any, ...]:
        """Words that it accepts; empty if it accepts anything."""
        return choices(self.hint, self.flag)

    @property
    def required(self) -> bool:
        return self.default is MISSING

    def help(self) -> str:
        """Return its explanation."""
        return (self.flag.help if isinstance(self.flag.help, str) else self.flag.help()) or self.meaning


def flag_name(field: str, flag: Flag) -> str:
    """Return the name of a field's flag without dashes in front."""
    return flag.name or field.replace("_", "-")


def keyword(name: str) -> str:
    """Return the keyword in Python for the flag ``name``."""
    return name.replace("-", "_")


def options_of(kind: type, without: Sequence[str] = (), group: tuple[str, str] | None = None) -> Iterator[Option]:
    """Yield the options of a dataclass and of the dataclasses among its fields, required ones first."""
    help_of, hints = meanings(kind), list_fields(kind)
    for field in sorted(fields(kind), key=lambda field: default_of(field) is not MISSING):
        hint, flag = hints[field.name]
        if field.name in without or flag is NO_FLAG:
            continue
        option = Option(flag_name(field.name, flag), hint, flag, default_of(field), help_of.get(field.name, ""), group)
        if is_dataclass(hint):
            own = (flag.group, option.help().removesuffix(".")) if flag.group else group
            yield from options_of(hint, flag.without, own)  # type: ignore[arg-type]
        else:
            yield option


def default_of(field: Field[Any]) -> Any:
    """Return the default of a field, made anew if it has a factory; ``MISSING`` if there is none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def record_options(options: Any, /, without: Sequence[str] = (), **decided: Any) -> dict[str, Any]:
    """Return the options that a manifest's ``config`` records, by name, in the order of the fields.

    The fields of nested dataclasses are listed among the others; fields annotated with ``UNRECORDED`` are left out.
    """
    record: dict[str, Any] = {}
    kind: type = type(options)
    hints = _read_hints(kind)
    for name in (field.name for field in fields(options)):
        if name not in without and UNRECORDED not in get_args(hints[name]):
            value = decided.get(name, getattr(options, name))
            record |= record_options(value) if is_dataclass(value) else {name: value}
    return record


def list_changed(options: Any, without: Sequence[str] = ()) -> list[str]:
    """Return the flags of all fields whose values are not their defaults, including those of nested dataclasses."""
    flags: list[str] = []
    for field in fields(options):
        value, flag = getattr(options, field.name), list_fields(type(options))[field.name][1]
        if is_dataclass(value):
            flags += list_changed(value, (*without, *flag.without))
        elif field.name not in without and value != default_of(field):
            flags.append(f"--{flag_name(field.name, flag)}")
    return flags


def explanation(kind: type) -> str:
    """Return the paragraphs of a dataclass's docstring between its first line and its sections."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[2]
    return re.split(r"^[A-Z]\w+:$", text, maxsplit=1, flags=re.MULTILINE)[0].strip().replace("``", "")


def examples(kind: type) -> str:
    """Return the section ``Examples:`` of a dataclass's docstring, without its heading."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("\nExamples:\n")[2]
    return inspect.cleandoc("\n" + text)


def meanings(kind: type) -> Mapping[str, str]:
    """Return each field's entry under ``Attributes:`` in the docstrings of a dataclass and its base classes."""
    return _read_meanings(kind)


@cache
def _read_meanings(kind: Any) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for ancestor in reversed(kind.__mro__):
        entries = inspect.cleandoc(ancestor.__doc__ or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
        for names, text in re.findall(r"^    (\w[\w, ]*): ?(.*(?:\n {8}.*)*)", entries, re.MULTILINE):
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def choices(hint: Any, flag: Flag) -> tuple[Any, ...]:
    """Return the words that a field of type ``hint`` accepts; empty if it accepts anything."""
    if flag.choices:
        return flag.choices
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next((get_args(part) for part in get_args(hint) if get_origin(part) is Literal), ())


def utf8(text: str) -> str:
    """Decode a command-line argument as UTF-8; Python itself does so in UTF-8 locales only."""
    try:
        return os.fsencode(text).decode()
    except UnicodeError:
        return text  # from a program, not from a command line


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
        details |= {"nargs": "?", "const": flag.bare} if flag.bare is not None else {}
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
