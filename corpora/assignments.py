"""``KEY=VALUE`` on a command line, read the same way by every command."""

from __future__ import annotations

import tomllib
from typing import Any

from corpora.errors import FarspanError


def assignment(text: str) -> tuple[str, Any]:
    """Key and value of ``KEY=VALUE``.

    The value is ``null`` (None, which TOML lacks), a TOML value, or else plain text, so that a word or a path needs no
    quotes within the shell's.

    Raises:
        FarspanError: no ``=``, or nothing before it.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key:
        raise FarspanError(f"--set {text}: give KEY=VALUE, e.g. --set {key or 'density'}=0.1")
    if value == "null":
        return key, None
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def spelled(value: Any) -> str:
    """A value for a message, as ``assignment`` and recipes take it: None is ``null``."""
    return "null" if value is None else repr(value)
