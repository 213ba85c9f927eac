"""Files that a user names: read as a whole, or refused in one line.

Pipes and devices are refused, because they may block for ever, as are contents nested too deeply for a parser.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from typing import Any

from corpora.errors import FarspanError, one_line
from corpora.storage.files import read_bytes

_CURE = "give a regular file that you may read"


def read_user_file(path: str | os.PathLike[str]) -> bytes:
    """Return the contents of a file, local or remote.

    Raises:
        FarspanError: it cannot be read, or is a folder, a pipe or a device.
    """
    try:
        return read_bytes(os.fspath(path))
    except OSError as error:
        raise FarspanError(f"{os.fspath(path)}: {error.strerror or one_line(error)}; {_CURE}") from error


def read_user_json(path: str | os.PathLike[str], pairs: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Return the JSON value in a file.

    Args:
        pairs: makes an object from its names and values, which may repeat; None for a dict.
    """
    data = read_user_file(path)
    return _parse(path, "JSON", lambda: json.loads(data, object_pairs_hook=pairs))


def read_user_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the tables in a TOML file."""
    data = read_user_file(path)
    tables: dict[str, Any] = _parse(path, "TOML", lambda: tomllib.loads(data.decode()))
    return tables


def _parse(path: str | os.PathLike[str], kind: str, parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except RecursionError:
        reason = "its brackets are nested too deep"
    except ValueError as error:
        reason = one_line(error)
    raise FarspanError(f"{os.fspath(path)}: not {kind}: {reason}")
