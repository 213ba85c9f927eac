"""JSON objects in files that end with a checksum of their own contents, so that any changed bit is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from corpora.storage.strict_json import StructureError, indented_json, parse_json

_KEY = "checksum"
_DIGITS, _END = 64, b'"\n}\n'


def seal(values: Mapping[str, Any]) -> bytes:
    """Return an object as indented JSON that ends with ``checksum``, the sha256 of the file with that text empty."""
    text = f"{indented_json({**values, _KEY: ''})}\n".encode()
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
