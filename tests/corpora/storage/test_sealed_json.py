"""JSON objects with a checksum of themselves: every changed bit, and every other change, is noticed."""

from __future__ import annotations

import json

import pytest

from corpora.storage.sealed_json import seal, unseal
from corpora.storage.strict_json import StructureError, indented_json

VALUES = {"name": "café", "counts": {"a": {"read": 3}}, "none": None, "list": [1, "x"]}


@pytest.mark.parametrize("values", [VALUES, {}])
def test_an_object_comes_back_and_is_plain_json(values):
    data = seal(values)
    assert unseal(data) == values
    digest = json.loads(data)["checksum"]
    assert data.decode() == indented_json({**values, "checksum": digest}) + "\n"
    assert len(digest) == 64


def test_every_flipped_bit_is_noticed():
    data = seal(VALUES)
    for position in range(8 * len(data)):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(StructureError):
            unseal(bytes(changed))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "no checksum"),
        (b"{}", "no checksum"),
        (indented_json(VALUES).encode(), "no checksum"),
        (seal(VALUES)[:-1], "do not have the checksum"),
        (seal(VALUES) + b" ", "do not have the checksum"),
        (seal(VALUES).replace(b'"read": 3', b'"read": 4'), "do not have the checksum"),
    ],
)
def test_whatever_else_is_there_is_refused(data, reason):
    with pytest.raises(StructureError, match=reason):
        unseal(data)
