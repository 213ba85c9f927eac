"""Checked access to the fields of records of published data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from corpora.readers.raw_tasks import Place, RawDocument, RawPair, RawTask
from corpora.readers.records import BadRecord, missing_field

Item = TypeVar("Item")


def text_of(record: Mapping[str, Any], name: str) -> str:
    """Return a field that has to be a string."""
    value = _field(record, name)
    if not isinstance(value, str):
        raise BadRecord("not_a_string", f"{name!r} is of type {type(value).__name__}")
    return value


def require_text(record: Mapping[str, Any], name: str) -> str:
    """Return the text in field ``name``, which must not be blank."""
    value = text_of(record, name)
    if not value or value.isspace():
        raise BadRecord("empty_text", f"{name!r} is empty or blank")
    return value


def optional_text(record: Mapping[str, Any], name: str) -> str:
    """Return the text in field ``name``; empty if the field is missing or null."""
    return "" if record.get(name) is None else text_of(record, name)


def require_texts(record: Mapping[str, Any], name: str) -> list[str]:
    """Return the strings of the list in field ``name`` that are not blank; at least one."""
    texts = [text for text in list_of(record, name, str) if text and not text.isspace()]
    if not texts:
        raise BadRecord("empty_text", f"{name!r} has no text in it")
    return texts


def list_of(record: Mapping[str, Any], name: str, kind: type[Item]) -> list[Item]:
    """Return the list in field ``name``, which may be empty."""
    value = _field(record, name)
    if not isinstance(value, list):
        raise BadRecord("not_a_list", f"{name!r} is of type {type(value).__name__}")
    if strange := [item for item in value if not isinstance(item, kind)]:
        raise BadRecord("not_a_list", f"{name!r} holds a {type(strange[0]).__name__}, not only {kind.__name__}")
    return value


def object_of(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object in field ``name``."""
    value = _field(record, name)
    if not isinstance(value, dict):
        raise BadRecord("not_an_object", f"{name!r} is of type {type(value).__name__}")
    return value


def id_of(record: Mapping[str, Any], name: str) -> str:
    """Return the id in field ``name``, a string or whole number, as a string."""
    value = _field(record, name)
    if (isinstance(value, str) and value.strip()) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise BadRecord("missing_id", f"{name!r} is {str(value)[:100]!r}, not a string or integer")


def _field(record: Mapping[str, Any], name: str) -> Any:
    if name not in record:
        raise missing_field(record, name)
    if record[name] is None:
        raise BadRecord("null_text", f"{name!r} is null")
    return record[name]


def text_beside(place: Place, *names: str) -> str:
    """Read the UTF-8 text of another file of the data set, the first of ``names`` that exists."""
    missing: list[BadRecord] = []
    for name in names:
        try:
            text = place.read_beside(name).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadRecord("invalid_utf8", f"{name}: byte {error.start}: {error.reason}") from error
        except BadRecord as bad:
            missing.append(bad)
            continue
        if text.strip():
            return text
        raise BadRecord("empty_text", f"{name} is empty or blank")
    raise missing[0]


def task_of_questions(
    documents: Sequence[RawDocument], questions: Iterable[Item], pair: Callable[[Item], RawPair]
) -> RawTask:
    """Make the contents of a record of many questions about the same documents; a bad question affects no other."""
    pairs: list[RawPair] = []
    bad: list[BadRecord] = []
    for question in questions:
        try:
            pairs.append(pair(question))
        except BadRecord as error:
            bad.append(error)
    return RawTask(documents, pairs, bad)
