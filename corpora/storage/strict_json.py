"""Conversion of untrusted JSON to frozen dataclasses, checked against the types of their fields.

A field's type is the whole rule: ``Annotated[int, range(...)]`` bounds a number, ``Annotated[str, re.compile(...)]``
restricts a text. A dataclass requires every field and allows no other key; a ``TypedDict`` allows other keys.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

Decoded = TypeVar("Decoded")
Natural = Annotated[int, range(2**63)]
Positive = Annotated[int, range(1, 2**63)]
Sha256 = Annotated[str, re.compile(r"[0-9a-f]{64}")]


class StructureError(ValueError):
    """A value of the wrong type or form; the message names its place and the value."""


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 JSON that has no NaN, infinities or surrogates.

    Raises:
        StructureError: anything else, or nested so deeply that it cannot be read.
    """
    try:
        value = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
        if re.search(rb"\\u[dD][89a-fA-F]", data):  # a lone surrogate can be neither printed nor written
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise StructureError(f"not JSON: {error}") from None
    return value


def decode(kind: type[Decoded], value: Any, name: str = "") -> Decoded:
    """Convert a value from ``parse_json`` to the dataclass, ``TypedDict`` or other type ``kind``; lists become tuples.

    Args:
        name: name of the value, for errors.

    Raises:
        StructureError: a value does not fit its type; names the first.
    """
    return _decode(kind, value, name)


def _decode(kind: Any, value: Any, name: str) -> Any:
    if kind is Any:
        return value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = _decode(inner[0], value, name)
        for rule in inner[1:]:
            if isinstance(rule, range) and value not in rule:
                raise _unfit(name, value, f"a whole number from {rule.start} to {rule.stop - 1}")
            if isinstance(rule, re.Pattern) and not rule.fullmatch(value):
                raise _unfit(name, value, f"text of the form {rule.pattern}")
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        (kind,) = (choice for choice in inner if choice is not NoneType)
        return _decode(kind, value, name)
    if origin is Mapping:
        if not isinstance(value, Mapping):
            raise _unfit(name, value, "a table")
        return {
            _decode(inner[0], key, f"a key of {name}"): _decode(inner[1], v, _at(name, key)) for key, v in value.items()
        }
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _unfit(name, value, "a list")
        return tuple(_decode(inner[0], part, f"{name}[{number}]") for number, part in enumerate(value))
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return _table(kind, value, name)
    if kind is float and type(value) is int:
        return value
    if type(value) is not kind:
        raise _unfit(name, value, {int: "a whole number", str: "text", bool: "true or false", float: "a number"}[kind])
    if kind is str and "\0" in value:
        raise _unfit(name, value, "text without zero bytes")
    return value


def _table(kind: Any, value: Any, name: str) -> Any:
    hints, needed = _fields(kind)
    if not isinstance(value, Mapping):
        raise _unfit(name, value, "a table")
    if lacking := [field for field in needed if field not in value]:
        raise StructureError(f"{name + ' ' if name else ''}lacks {', '.join(lacking)}")
    if is_typeddict(kind):
        return {**value, **{key: _decode(hints[key], value[key], _at(name, key)) for key in hints if key in value}}
    if strange := [key for key in value if key not in hints]:
        raise StructureError(f"{name + ' ' if name else ''}has an unknown key {_short(strange[0])}")
    return kind(**{key: _decode(hints[key], part, _at(name, key)) for key, part in value.items()})


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the types of the fields, and the names of required ones."""
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        return hints, tuple(name for name in hints if name in kind.__required_keys__)
    return hints, tuple(hints)


def _at(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _unfit(name: str, value: Any, needed: str) -> StructureError:
    return StructureError(f"{name or 'it'} is {_short(value)}; {needed} is needed")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a finite number")
    return number
