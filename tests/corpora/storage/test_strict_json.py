"""JSON of artefacts: read strictly, converted to dataclasses, and sealed by a checksum inside the file."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.storage.strict_json import Natural, Positive, Sha256, StructureError, decode, parse_json, seal, unseal


@dataclass(frozen=True)
class Part:
    name: Annotated[str, re.compile(r"[a-z]+")]
    size: Natural


class Facts(TypedDict, total=False):
    count: Positive


@dataclass(frozen=True)
class Whole:
    """A field of each kind."""

    parts: tuple[Part, ...]
    facts: Facts
    shares: Mapping[str, float]
    parent: str | None
    sound: bool
    anything: Any


PART = {"name": "a", "size": 3}
WHOLE = {"parts": [PART], "facts": {}, "shares": {"x": 0.5}, "parent": None, "sound": True, "anything": [1, None]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_sound_json_is_read_as_by_the_library(value):
    try:
        data = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert parse_json(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"\xff", b"NaN", b"[Infinity]", b"-Infinity", b"1e999", b'"\\ud83d"', b'{"\\uDC00": 1}',
        b"[" * 200_000,
    ],
)  # fmt: skip
def test_other_data_is_refused(data):
    with pytest.raises(StructureError, match=r"^not JSON: "):
        parse_json(data)
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_values_become_dataclasses_tuples_and_mappings():
    assert decode(Whole, WHOLE) == Whole((Part("a", 3),), {}, {"x": 0.5}, None, True, [1, None])
    more = decode(Whole, {**WHOLE, "facts": {"count": 2, "other": "x"}, "parent": "p", "shares": {"x": 1}})
    assert (more.facts, more.parent, more.shares) == ({"count": 2, "other": "x"}, "p", {"x": 1})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parts": {}}, "parts is {}; a list is needed"),
        ({"parts": [PART, 3]}, r"parts\[1\] is 3; a table is needed"),
        ({"parts": [{"name": "a"}]}, r"parts\[0\] lacks size"),
        ({"parts": [{**PART, "more": 1}]}, r'parts\[0\] has an unknown key "more"'),
        ({"parts": [{**PART, "name": "A"}]}, r'parts\[0\]\.name is "A"; text of the form \[a-z\]\+ is needed'),
        ({"parts": [{**PART, "size": -1}]}, r"parts\[0\]\.size is -1; a whole number from 0 to"),
        ({"parts": [{**PART, "size": 1.0}]}, r"parts\[0\]\.size is 1\.0; a whole number is needed"),
        ({"parts": [{**PART, "size": True}]}, r"parts\[0\]\.size is true; a whole number is needed"),
        ({"facts": {"count": 0}}, r"facts\.count is 0; a whole number from 1"),
        ({"shares": {"x": "1"}}, r'shares\.x is "1"; a number is needed'),
        ({"parent": 3}, "parent is 3; text is needed"),
        ({"parent": "a\0"}, "text without zero bytes is needed"),
        ({"sound": 1}, "sound is 1; true or false is needed"),
        ({"sound": None}, "sound is null; true or false is needed"),
        ({"anything": "x" * 100, "parts": "x" * 100}, r'parts is "x+\.\.\.; a list is needed'),
    ],
)
def test_the_first_value_that_does_not_fit_is_named(changes, message):
    with pytest.raises(StructureError, match=message):
        decode(Whole, {**WHOLE, **changes})


def test_a_value_by_itself_has_the_name_it_is_given():
    with pytest.raises(StructureError, match=r"^it is 3; text is needed"):
        decode(str, 3)
    with pytest.raises(StructureError, match=r'^sha256 is "AB"; text of the form'):
        decode(Sha256, "AB", "sha256")
    with pytest.raises(StructureError, match=r"^lacks parts, facts, shares, parent, sound, anything"):
        decode(Whole, {})


VALUES = {"name": "café", "counts": {"a": {"read": 3}}, "none": None, "list": [1, "x"]}


@pytest.mark.parametrize("values", [VALUES, {}])
def test_an_object_comes_back_and_is_plain_json(values):
    data = seal(values)
    assert unseal(data) == values
    digest = json.loads(data)["checksum"]
    assert data.decode() == json.dumps({**values, "checksum": digest}, indent=1, ensure_ascii=False) + "\n"
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
        (json.dumps(VALUES, indent=1, ensure_ascii=False).encode(), "no checksum"),
        (seal(VALUES)[:-1], "do not have the checksum"),
        (seal(VALUES) + b" ", "do not have the checksum"),
        (seal(VALUES).replace(b'"read": 3', b'"read": 4'), "do not have the checksum"),
    ],
)
def test_whatever_else_is_there_is_refused(data, reason):
    with pytest.raises(StructureError, match=reason):
        unseal(data)
