"""Frozen dataclasses made from TOML tables, flags and Python keywords; errors name option, value and cure."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from corpora.errors import FarspanError, nearest
from corpora.options import NO_FLAG, Flag, default_of, flag_name, keyword, list_fields

Settings = TypeVar("Settings")


def parse(kind: type[Settings], values: Any, file: str, section: str = "") -> Settings:
    """Build the dataclass ``kind`` from nested tables.

    If a section's type is a union of dataclasses, its key ``pattern`` or ``scheme`` chooses one. An optional section or
    value is None if it is ``"none"``, ``"null"`` or absent. A leading ``~/`` becomes the user's home, because a shell
    does not expand it in ``--set data.corpus=~/corpus``. Errors name ``file`` and section.
    """
    where = f"{file}: [{section}]" if section else file
    if not isinstance(values, Mapping):
        raise FarspanError(f"{where} is {format_value(values)}; a table is needed, with keys {_names(kind)}")
    known = list_fields(kind)
    for key in values:
        if key not in known:
            hint = _suggest_section(kind, key, section) or nearest(key, known)
            raise FarspanError(f"{where} has no key {key!r}{hint}; its keys: {_names(kind)}")
    required = (field.name for field in fields(kind) if default_of(field) is MISSING)  # type: ignore[arg-type]
    if lacking := [name for name in required if name not in values]:
        raise FarspanError(f"{where} lacks {', '.join(lacking)}; add what is missing, its keys: {_names(kind)}")
    parsed = {}
    for key, value in values.items():
        hint, flag = known[key]
        parsed[key] = _in_range(flag, _value(hint, value, file, _join(section, key)), file, _join(section, key))
    try:
        return kind(**parsed)
    except FarspanError as error:
        raise FarspanError(f"{file}: {error}") from None


def _suggest_section(kind: type[Any], key: str, section: str) -> str:
    """Return `` (did you mean 'SECTION.KEY'?)`` with the sections of ``kind`` that have the key; empty if none has."""
    places = []
    for name, (hint, _) in list_fields(kind).items():
        sections = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if any(is_dataclass(one) and key in list_fields(one) for one in sections):  # type: ignore[arg-type]
            places.append(repr(_join(section, f"{name}.{key}")))
    return f" (did you mean {' or '.join(places)}?)" if places else ""


def make(
    kind: type[Settings],
    values: Mapping[str, Any],
    spell: Callable[[str], str] = "--{}".format,
    without: Sequence[str] = (),
    **fixed: Any,
) -> Settings:
    """Build the dataclass ``kind`` from flags as argparse stores them, or from Python keywords.

    The fields of nested dataclasses are among the values of the outer one, and values for other dataclasses may be.
    Fields without a value keep their defaults, as do those of ``without``, whose flags mean something else; ``fixed``
    are values in place of the given ones. ``spell`` makes the name of an option in messages from that of its flag.
    """
    decoded = dict(fixed)
    for field, (hint, flag) in list_fields(kind).items():
        option = flag_name(field, flag)
        if field in fixed or field in without or flag is NO_FLAG:
            continue
        if is_dataclass(hint):
            decoded[field] = make(hint, values, spell, flag.without)  # type: ignore[arg-type]
        elif keyword(option) in values:
            value = _convert(hint, flag, values[keyword(option)], spell(option))
            decoded[field] = _in_range(flag, value, "", spell(option))
            if hint is bool and getattr(kind, field):  # the flag switches it off, as --euclidean does for spherical
                decoded[field] = not decoded[field]
    return kind(**decoded)


def _convert(hint: Any, flag: Flag, value: Any, name: str) -> Any:
    """Convert the value of a flag or keyword: paths to text, ``KEY=VALUE`` and mappings to one another."""
    if NoneType in get_args(hint):
        if value is None:
            return None
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
    if get_origin(hint) is tuple:
        return _list(get_args(hint), _list_values(value, flag, name), "", name)
    if get_origin(hint) is Mapping and isinstance(value, list | tuple):
        return dict(parse_assignment(text, name) for text in value)
    value = _path_text(value)
    return _require_choice(value, flag.choices, "", name) if flag.choices else _value(hint, value, "", name)


def _list_values(value: Any, flag: Flag, name: str) -> Any:
    """Return the values of a repeatable option: one alone is a list of one, and a mapping a list of ``NAME=VALUE``."""
    if isinstance(value, Mapping) and flag.metavar == "KEY=VALUE":
        return [format_assignment(key, one) for key, one in value.items()]
    if isinstance(value, Mapping):  # NAME=PATTERN is not TOML
        return [f"{key}={_value(str, _path_text(one), '', f'{name}[{key!r}]')}" for key, one in value.items()]
    values = [value] if isinstance(value, str | os.PathLike) else value
    return list(map(_path_text, values)) if isinstance(values, Iterable) else values


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _value(kind: Any, value: Any, file: str, name: str) -> Any:
    """Convert ``value`` to the type ``kind`` of a field."""
    if get_origin(kind) in (Union, UnionType):
        return _choice(get_args(kind), value, file, name)
    if is_dataclass(kind):
        return parse(kind, value, file, name)  # type: ignore[arg-type]
    if get_origin(kind) is Literal:
        return _require_choice(value, get_args(kind), file, name)
    if get_origin(kind) is tuple:
        return _list(get_args(kind), value, file, name)
    if kind in _NUMBERS and isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool):  # numpy's, too
        value = _number(kind, value)
    plain = get_origin(kind) or kind
    if not (isinstance(value, Mapping) if plain in (dict, Mapping) else type(value) is plain):
        raise FarspanError(
            f"{_at(file, name)} is {format_value(value)}; a value of type {_TYPES.get(plain, plain.__name__)} is needed"
        )
    if kind is float and math.isnan(value):  # it would pass every check against a limit
        raise FarspanError(f"{_at(file, name)} is nan; a number is needed")
    return os.path.expanduser(value) if kind is str and value.startswith("~/") else value


_NUMBERS: Mapping[Any, Any] = {int: Integral, float: Real}
_TYPES: Mapping[Any, str] = {Mapping: "dict"}


def _number(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except OverflowError:  # of more than 308 digits
        return math.inf


def _require_choice(value: Any, choices: Sequence[Any], file: str, name: str) -> Any:
    """Return ``value`` if it is one of ``choices``."""
    if value in choices:
        return value
    hint = nearest(value, map(str, choices)) if isinstance(value, str) else ""
    raise FarspanError(
        f"{_at(file, name)} is {format_value(value)}{hint}; choose one of {', '.join(map(repr, choices))}"
    )


def _in_range(flag: Flag, value: Any, file: str, name: str) -> Any:
    """Return a value if neither it nor one in its list is a number outside the range of its option."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not flag.least <= number <= flag.most:
            cure = f"of at least {flag.least}" if flag.most == math.inf else f"from {flag.least} to {flag.most}"
            raise FarspanError(f"{_at(file, name)} {number}: give a number {cure}")
    return value


def _at(file: str, name: str) -> str:
    return f"{file}: {name}" if file else name


def _list(inner: tuple[Any, ...], value: Any, file: str, name: str) -> tuple[Any, ...]:
    """Convert ``value`` to a tuple of the types ``inner``; ``(T, ...)`` stands for any number of ``T``."""
    any_number = inner[1:] == (...,)
    if not isinstance(value, list | tuple) or not (any_number or len(value) == len(inner)):
        needed = f"{len(inner)} values" if not any_number else "tables" if is_dataclass(inner[0]) else "values"
        raise FarspanError(f"{_at(file, name)} is {format_value(value)}; a list of {needed} is needed")
    kinds = inner[:1] * len(value) if any_number else inner
    return tuple(
        _value(kind, part, file, f"{name}[{number}]")
        for number, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )


def _choice(kinds: Sequence[Any], value: Any, file: str, name: str) -> Any:
    if NoneType in kinds and value in (None, "none", "null"):
        return None
    kinds = [kind for kind in kinds if kind is not NoneType]
    if len(kinds) == 1:
        return _value(kinds[0], value, file, name)
    plain = [kind for kind in kinds if not is_dataclass(kind)]
    if plain:  # a word, a list or a number: the type of the value decides
        fitting = [kind for kind in plain if _looks_like(kind, value)]
        return _value(fitting[0] if fitting else plain[0], value, file, name)
    tag = "pattern" if any(field.name == "pattern" for field in fields(kinds[0])) else "scheme"
    by_tag = {str(field.default): kind for kind in kinds for field in fields(kind) if field.name == tag}
    chosen = value.get(tag) if isinstance(value, Mapping) else value
    if not isinstance(chosen, str) or chosen not in by_tag:
        raise FarspanError(
            f"{file}: {name}.{tag} is {chosen!r}{nearest(str(chosen), by_tag)}; "
            f"choose one of {', '.join(map(repr, by_tag))}"
        )
    return _value(by_tag[chosen], value if isinstance(value, Mapping) else {}, file, name)


def _looks_like(kind: Any, value: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str)
    if get_origin(kind) is tuple:
        return isinstance(value, list)
    return isinstance(value, kind)


def override(values: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return a copy of ``values`` with each ``dotted.key=value`` set, as parsed by ``parse_assignment``."""
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in values.items()}
    for text in assignments:
        dotted, value = parse_assignment(text)
        *path, last = dotted.split(".")
        table = values
        for part in path:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise FarspanError(f"--set {text}: {part!r} is {format_value(inner)}, not a section")
            table[part] = dict(inner)
            table = table[part]
        table[last] = value
    return values


def parse_assignment(text: str, flag: str = "--set") -> tuple[str, Any]:
    """Parse ``KEY=VALUE`` into key and value.

    The value is ``null`` (None, which TOML lacks), a TOML value, or else plain text, so words and paths need no TOML
    quotes.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise FarspanError(f"{flag} {text}: give KEY=VALUE, e.g. {flag} {key or 'density'}=0.1")
    if value == "null":
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except RecursionError:
        raise FarspanError(f"{flag} {key}=...: its brackets are nested too deep") from None
    except ValueError:
        return key, value


def format_assignment(key: str, value: Any) -> str:
    """Format ``KEY=VALUE`` so that ``parse_assignment`` reads it back; paths become strings."""
    return f"{key}={_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    plain = os.fspath(value) if isinstance(value, os.PathLike) else value
    return json.dumps(plain, ensure_ascii=False)


def format_value(value: Any) -> str:
    """Format a value for a message as ``parse_assignment`` and recipes spell it: None is ``null``."""
    return "null" if value is None else repr(value)


def _join(section: str, key: str) -> str:
    return f"{section}.{key}" if section else key


def _names(kind: Any) -> str:
    return ", ".join(field.name for field in fields(kind))
