"""The contents of a task's raw data: documents, and pairs of a query with its answers; checked access to raw fields.

Each data set of ``corpora.readers.tasks`` has a function that turns a record into a ``RawTask``, of which
``corpora.readers.task_files`` makes a ``Reader``. With it, ``farspan documents`` keeps the documents of a data set
and ``farspan pairs`` its pairs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from corpora.readers.options import ReadOptions
from corpora.readers.records import BadRecord, missing_field
from corpora.storage import files

Item = TypeVar("Item")

_SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
_COMPRESSED = re.compile(r"\.(gz|bz2|xz|zst)$", re.IGNORECASE)


def find_split_name(text: str) -> str | None:
    """Return ``train``, ``validation`` or ``test`` if the words of ``text`` name exactly one of them, else None."""
    splits = {_SPLITS[word] for word in re.split(r"[^a-z]+", text.lower()) if word in _SPLITS}
    return splits.pop() if len(splits) == 1 else None


def text_key(text: str) -> str:
    """Return the key of a document without id: a hash of its text, so that equal texts are one document."""
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


class RawDocument(NamedTuple):
    """A document of a data set; its id becomes ``source:key``."""

    key: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RawPair:
    """A question, or a summary to be written, about documents of the same record."""

    pair_id: str  # the data set's own; records with equal ids are one pair with several answers
    documents: tuple[str, ...]  # keys of its documents, in order
    query: str = ""  # the question; empty if there is none
    targets: tuple[str, ...] = ()  # texts to train on; empty if the data set withholds them
    references: tuple[str, ...] | None = None  # texts to compare with; None for the targets
    options: tuple[str, ...] | None = None  # texts to choose from; None for a free answer
    split: str | None = None  # train, validation, test or another name for one of them; None for the file's split
    attributes: Mapping[str, Any] = field(default_factory=dict)  # further values, all JSON

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RawPair:
        """Parse what ``to_json`` returns."""
        values = json.loads(text)
        for name in ("documents", "targets", "references", "options"):
            values[name] = None if values[name] is None else tuple(values[name])
        return cls(**values)


class RawTask(NamedTuple):
    """The contents of one record: documents, and pairs about them."""

    documents: Sequence[RawDocument]
    pairs: Sequence[RawPair]
    bad: Sequence[BadRecord] = ()  # reasons to reject other parts of the record, such as one of its questions

    @classmethod
    def of(cls, documents: Sequence[RawDocument], bad: Sequence[BadRecord] = (), **fields: Any) -> RawTask:
        """Make the contents of a record with one pair, about all ``documents``; ``fields``: the others of the pair."""
        pair = RawPair(documents=tuple(document.key for document in documents), **fields)
        return cls(documents, [pair], bad)

    @classmethod
    def of_questions(
        cls, documents: Sequence[RawDocument], questions: Iterable[Item], pair: Callable[[Item], RawPair]
    ) -> RawTask:
        """Make the contents of a record of many questions about its documents; a bad question affects no other."""
        pairs: list[RawPair] = []
        bad: list[BadRecord] = []
        for question in questions:
            try:
                pairs.append(pair(question))
            except BadRecord as error:
                bad.append(error)
        return cls(documents, pairs, bad)


@dataclass(frozen=True)
class Place:
    """The place of a record."""

    path: str
    member: str  # of an archive, else empty
    key: str  # place of the record in the file or member: byte offset, row number or name
    options: ReadOptions

    @property
    def name(self) -> str:
        """Name of the file or member, without its folder and without the suffix of a compression."""
        return _COMPRESSED.sub("", posixpath.basename(self.member or self.path))

    @property
    def folders(self) -> tuple[str, ...]:
        """Names of the folders that hold the file, and of the archive without suffix, the nearest first."""
        inside = posixpath.dirname(self.member).split("/")
        archive = [posixpath.basename(self.path).partition(".")[0]] if self.member else []
        names = [*posixpath.dirname(self.path).split("/"), *archive, *inside]
        return tuple(name for name in reversed(names) if name)

    @property
    def split(self) -> str | None:
        """The split named by a word of the file's name, or else by the name of its folder."""
        return find_split_name(self.name.partition(".json")[0]) or _SPLITS.get((*self.folders, "")[0].lower())

    def read_beside(self, relative: str) -> bytes:
        """Read another file of the data set, by its path from the folder of this one."""
        scheme, sign, folder = posixpath.dirname(self.path).rpartition("://")
        # only the local disk follows `..`
        path = scheme + sign + posixpath.normpath(posixpath.join(folder, relative))
        try:
            with files.open(path) as file:
                return file.read()
        except OSError as error:
            raise BadRecord("missing_file", f"{path}: {error.strerror or error}") from error
        except ValueError as error:  # a zero byte in the name
            raise BadRecord("unsafe_name", f"{path!r}: {error}") from error


class RawRecord(dict[str, Any]):
    """A JSON object of a published data set, with checked access to its fields."""

    def text_of(self, name: str) -> str:
        """Return a field that has to be a string."""
        value = self._value(name)
        if not isinstance(value, str):
            raise BadRecord("not_a_string", f"{name!r} is of type {type(value).__name__}")
        return value

    def require_text(self, name: str) -> str:
        """Return the text in field ``name``, which must not be blank."""
        value = self.text_of(name)
        if not value or value.isspace():
            raise BadRecord("empty_text", f"{name!r} is empty or blank")
        return value

    def optional_text(self, name: str) -> str:
        """Return the text in field ``name``; empty if the field is missing or null."""
        return "" if self.get(name) is None else self.text_of(name)

    def require_texts(self, name: str) -> list[str]:
        """Return the strings of the list in field ``name`` that are not blank; at least one."""
        texts = [text for text in self.list_of(name, str) if text and not text.isspace()]
        if not texts:
            raise BadRecord("empty_text", f"{name!r} has no text in it")
        return texts

    def list_of(self, name: str, kind: type[Item]) -> list[Item]:
        """Return the list in field ``name``, which may be empty."""
        value = self._value(name)
        if not isinstance(value, list):
            raise BadRecord("not_a_list", f"{name!r} is of type {type(value).__name__}")
        if strange := [item for item in value if not isinstance(item, kind)]:
            raise BadRecord("not_a_list", f"{name!r} holds a {type(strange[0]).__name__}, not only {kind.__name__}")
        return value

    def objects_of(self, name: str) -> list[RawRecord]:
        """Return the objects of the list in field ``name``, which may be empty."""
        return list(map(RawRecord, self.list_of(name, dict)))

    def object_of(self, name: str) -> RawRecord:
        """Return the object in field ``name``."""
        value = self._value(name)
        if not isinstance(value, dict):
            raise BadRecord("not_an_object", f"{name!r} is of type {type(value).__name__}")
        return RawRecord(value)

    def id_of(self, name: str) -> str:
        """Return the id in field ``name``, a string or whole number, as a string."""
        value = self._value(name)
        if (isinstance(value, str) and value.strip()) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
        raise BadRecord("missing_id", f"{name!r} is {str(value)[:100]!r}, not a string or integer")

    def _value(self, name: str) -> Any:
        if name not in self:
            raise missing_field(self, name)
        if self[name] is None:
            raise BadRecord("null_text", f"{name!r} is null")
        return self[name]


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
