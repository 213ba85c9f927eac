"""JSON of artefacts: sealed by a checksum, and converted strictly to dataclasses, checked against their field types.

A sealed file ends with a checksum of its own contents, so that any changed bit is noticed.

A field's type is the whole rule: ``Annotated[int, range(...)]`` bounds a number, ``Annotated[str, re.compile(...)]``
restricts a text. A dataclass requires every field and allows no other key; a ``TypedDict`` allows other keys.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

Decoded = TypeVar("Decoded")
Natural = Annotated[int, range(2**63)]
Positive = Annotated[int, range(1, 2**63)]
Sha256 = Annotated[str, re.compile(r"[0-9a-f]{64}")]
_KEY = "checksum"
_DIGITS, _END = 64, b'"\n}\n'


class StructureError(ValueError):
    """A value of the wrong type or form; the message names its place and the value."""


def parse_json(data: bytes) -> Any:
    """Parse UTF-8 JSON that has no NaN, infinities or surrogates."""
    try:
        value = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite)
        if re.search(rb"\\u[dD][89a-fA-F]", data):  # a lone surrogate can be neither printed nor written
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise StructureError(f"not JSON: {error}") from None
    return value


def seal(values: Mapping[str, Any]) -> bytes:
    """Return an object as indented JSON that ends with ``checksum``, the sha256 of the file with that text empty."""
    text = f"{json.dumps({**values, _KEY: ''}, indent=1, ensure_ascii=False)}\n".encode()
    return text.removesuffix(_END) + _digest(text) + _END


def unseal(data: bytes) -> dict[str, Any]:
    """Return the object that ``seal`` was given."""
    edge = len(data) - len(_END) - _DIGITS
    text = data[: max(edge, 0)] + _END
    if data != text.removesuffix(_END) + _digest(text) + _END:
        values = parse_json(data)
        if not isinstance(values, dict) or _KEY not in values:
            raise StructureError(f"no {_KEY}")
        raise StructureError(f"its contents do not have the {_KEY} that they were written with")
    values = parse_json(text)
    if not isinstance(values, dict) or values.pop(_KEY, None) != "":
        raise StructureError(f"no {_KEY} at its end")
    return values


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def decode(kind: type[Decoded], value: Any, name: str = "") -> Decoded:
    """Convert a value from ``parse_json`` to the dataclass, ``TypedDict`` or other type ``kind``; lists become tuples.

    The first value that does not fit its type raises ``StructureError``.
    """
    decoder = _decoder(cast(Any, kind))
    return cast(Decoded, decoder(value, name))


_Decoder = Callable[[Any, str], Any]  # of a value and its name


@cache
def _decoder(kind: Any) -> _Decoder:
    """Return the function that checks and converts values of a type; each type is inspected once."""
    if kind is Any:
        return lambda value, name: value
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _with_rules(_decoder(inner[0]), inner[1:])
    if origin in (Union, UnionType):
        (kind,) = (choice for choice in inner if choice is not NoneType)
        chosen = _decoder(kind)
        return lambda value, name: None if value is None else chosen(value, name)
    if origin is Mapping:
        return _mapping(*map(_decoder, inner))
    if origin is tuple:
        return _list(_decoder(inner[0]))
    if dataclasses.is_dataclass(kind) or is_typeddict(kind):
        return lambda value, name: _table(kind, value, name)
    return _scalar(kind)


def _with_rules(decode_inner: _Decoder, rules: tuple[Any, ...]) -> _Decoder:
    def decode_by_rules(value: Any, name: str) -> Any:
        value = decode_inner(value, name)
        for rule in rules:
            if isinstance(rule, range) and value not in rule:
                raise _unfit(name, value, f"a whole number from {rule.start} to {rule.stop - 1}")
            if isinstance(rule, re.Pattern) and not rule.fullmatch(value):
                raise _unfit(name, value, f"text of the form {rule.pattern}")
        return value

    return decode_by_rules


def _mapping(decode_key: _Decoder, decode_part: _Decoder) -> _Decoder:
    def decode_mapping(value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            raise _unfit(name, value, "a table")
        return {decode_key(key, f"a key of {name}"): decode_part(part, _at(name, key)) for key, part in value.items()}

    return decode_mapping


def _list(decode_part: _Decoder) -> _Decoder:
    def decode_list(value: Any, name: str) -> Any:
        if not isinstance(value, list | tuple):
            raise _unfit(name, value, "a list")
        return tuple([decode_part(part, f"{name}[{number}]") for number, part in enumerate(value)])

    return decode_list


def _scalar(kind: Any) -> _Decoder:
    def decode_scalar(value: Any, name: str) -> Any:
        if kind is float and type(value) is int:
            return value
        if type(value) is not kind:
            needed = {int: "a whole number", str: "text", bool: "true or false", float: "a number"}[kind]
            raise _unfit(name, value, needed)
        if kind is str and "\0" in value:
            raise _unfit(name, value, "text without zero bytes")
        return value

    return decode_scalar


def _table(kind: Any, value: Any, name: str) -> Any:
    decoders, needed, open_ended = _fields(kind)
    if not isinstance(value, Mapping):
        raise _unfit(name, value, "a table")
    if lacking := [field for field in needed if field not in value]:
        raise StructureError(f"{name + ' ' if name else ''}lacks {', '.join(lacking)}")
    if open_ended:
        known = {key: decode(value[key], _at(name, key)) for key, decode in decoders.items() if key in value}
        return {**value, **known}
    if strange := [key for key in value if key not in decoders]:
        raise StructureError(f"{name + ' ' if name else ''}has an unknown key {_short(strange[0])}")
    return kind(**{key: decoders[key](part, _at(name, key)) for key, part in value.items()})


@cache
def _fields(kind: Any) -> tuple[dict[str, _Decoder], tuple[str, ...], bool]:
    """Return decoders of the fields, the names of required ones, and True if other keys are allowed."""
    decoders = {name: _decoder(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    if is_typeddict(kind):
        return decoders, tuple(name for name in decoders if name in kind.__required_keys__), True
    return decoders, tuple(decoders), False


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
