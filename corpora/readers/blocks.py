"""The declaration of a format, and checks of records of all formats: each is kept, left out or rejected."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from corpora.readers.options import ReadOptions
from corpora.readers.raw_tasks import Place, RawTask, text_key
from corpora.readers.records import (
    BLOCK_BYTES,
    RAW_BYTES,
    BadRecord,
    Cut,
    DamagedFile,
    Range,
    RecordBlock,
    Reject,
    missing_field,
)
from corpora.text.preprocessing import STEPS

_RECORD_BYTES = 100  # memory of a record in addition to its text


class _Named(NamedTuple):
    """Id, cluster and title that a record states, each None if it states none."""

    id: str | None
    cluster: str | None
    title: str | None


@dataclass
class BlockBuilder:
    """Checks records and collects the good ones into blocks."""

    path: str
    options: ReadOptions
    pairs: bool = False  # True to keep the pairs of data sets of tasks, and not their documents
    prefix: str = ""  # of the place of every record: the name of the current archive member and a colon
    split: Callable[[str], list[str]] | None = None  # splits the text of a record into the documents of a cluster
    block: RecordBlock = field(init=False)  # the current one
    _known: dict[str, str] = field(default_factory=dict)  # key of a task's document -> hash of its text
    _bytes: int = field(init=False)

    def __post_init__(self) -> None:
        ids, titles = self.options.id_field, self.options.title_field
        self.block = RecordBlock(ids=None if ids is None else [], titles=None if titles is None else [])
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._bytes >= BLOCK_BYTES

    def add(self, key: int | str, record: Mapping[str, Any], raw: bytes) -> None:
        """Keep the text of ``record``, or each of its list of texts, or reject it and keep the beginning of ``raw``."""
        name = self.options.text_field
        try:
            if name not in record:
                raise missing_field(record, name)
            named = self._names_in(record)
        except BadRecord as bad:
            self.reject(key, bad.reason, raw, str(bad))
            return
        text = record[name]
        if self.split and isinstance(text, str) and text:
            text = self.split(text)
        if isinstance(text, list):
            self._add_cluster(key, text, named, raw)
        else:
            self._keep_or_reject(str(key), text, named, raw)

    def place(self, key: str) -> Place:
        """Return the place of a record of a task."""
        return Place(self.path, self.prefix.removesuffix(":"), key, self.options)

    def add_task(self, key: int | str, parse: Callable[[Any, Place], RawTask], record: Any, raw: bytes = b"") -> None:
        """Parse a record of a data set of tasks, and keep each of its documents once, or its pairs as JSON."""
        place = self.place(str(key))
        task = parse(record, place)
        if self.pairs:
            self._add_pairs(place, task, raw)
            return
        for document in task.documents:
            text = text_key(document.text)
            known = self._known.setdefault(document.key, "")
            if not known:
                self._known[document.key] = text
                record = {self.options.text_field: document.text, str(self.options.id_field): document.key}
                self.add(key, record, raw)
            elif known == text:
                self.block.filtered += 1
            else:
                detail = f"an earlier document of the file has the key {document.key!r} and another text"
                self.reject(key, "duplicate_id", raw, detail)

    def _add_pairs(self, place: Place, task: RawTask, raw: bytes) -> None:
        """Add each pair, with the file's split if the record has none; reject the bad parts of the record."""
        for bad in task.bad:
            self.reject(place.key, bad.reason, raw, str(bad))
        blank = {document.key for document in task.documents if not document.text.strip()}
        for number, pair in enumerate(task.pairs):
            key = place.key if len(task.pairs) == 1 else f"{place.key}.{number}"
            if names := [name for name in pair.documents if name in blank]:
                self.reject(key, "empty_document", raw, f"document {names[0]!r} has no text")
            elif not pair.documents:
                self.reject(key, "no_document", raw, f"pair {pair.pair_id!r} names no document")
            else:
                whole = pair if pair.split else replace(pair, split=place.split)
                record = {self.options.text_field: whole.to_json(), str(self.options.id_field): pair.pair_id}
                self.add(key, record, raw)

    def _add_cluster(self, key: int | str, texts: Sequence[Any], named: _Named, raw: bytes) -> None:
        """Check each of the texts separately, so that a bad one does not affect its neighbours."""
        if not texts:
            self.reject(key, "empty_cluster", raw, f"{self.options.text_field!r} is a list without texts")
        if self.options.cluster_field is None:
            named = named._replace(cluster=f"{self.prefix}{key}")
        for number, text in enumerate(texts):
            piece = text if isinstance(text, str) else reprlib.repr(text)
            document = named if named.id is None else named._replace(id=f"{named.id}.{number}")
            self._keep_or_reject(f"{key}.{number}", text, document, piece[:RAW_BYTES].encode(errors="backslashreplace"))

    def _keep_or_reject(self, key: str, text: Any, named: _Named, raw: bytes) -> None:
        name = self.options.text_field
        if text is None:
            self.reject(key, "null_text", raw, f"{name!r} is null")
        elif not isinstance(text, str):
            self.reject(key, "not_a_string", raw, f"{name!r} is of type {type(text).__name__}")
        elif not text or text.isspace():
            self.reject(key, "empty_text", raw, f"{name!r} is empty or blank")
        elif half := _half_pair(text):
            self.reject(key, "invalid_utf8", raw, f"{name!r} holds {half}, half of a surrogate pair")
        else:
            self._keep(key, text, named)

    def _keep(self, key: str, text: str, named: _Named) -> None:
        for step in self.options.preprocess:
            text = STEPS[step](text)
        if not text or text.isspace() or len(text) < self.options.min_characters:
            self.block.filtered += 1
            return
        self.block.texts.append(text)
        self.block.keys.append(self.prefix + key)
        if self.block.ids is not None and named.id is not None:
            self.block.ids.append(named.id)
        self.block.clusters.append(named.cluster)
        if self.block.titles is not None:
            self.block.titles.append(named.title)
        self._bytes += len(text) + len(named.title or "") + _RECORD_BYTES

    def _names_in(self, record: Mapping[str, Any]) -> _Named:
        names = self.options
        own_id = None if names.id_field is None else _name_of(record, names.id_field, "missing_id")
        cluster = None
        if names.cluster_field is not None and record.get(names.cluster_field) is not None:
            cluster = _name_of(record, names.cluster_field, "missing_cluster")
        return _Named(own_id, cluster, None if names.title_field is None else _title_of(record, names.title_field))

    def reject(self, key: int | str, reason: str, raw: bytes, detail: str) -> None:
        raw = raw[:RAW_BYTES]
        self.block.rejects.append(Reject(self.path, _escape(f"{self.prefix}{key}"), reason, raw, _escape(detail)))
        self._bytes += len(raw) + _RECORD_BYTES

    @contextmanager
    def reject_if_bad(self, key: int | str, raw: bytes = b"") -> Iterator[None]:
        """Reject a record for which the ``with`` block raises ``BadRecord``."""
        try:
            yield
        except BadRecord as bad:
            self.reject(key, bad.reason, raw, str(bad))

    def damage(self, damaged: DamagedFile, lost: int) -> None:
        """Reject the data that is unreadable because of damage, and count it as ``lost`` bytes."""
        self.reject(damaged.key, damaged.reason, damaged.raw, str(damaged))
        self.lose(lost)

    def lose(self, lost: int) -> None:
        """Count bytes of a damaged place that were not read or are not trusted."""
        self.block.damaged += 1
        self.block.lost += lost

    def take(self, position: int) -> RecordBlock:
        """Return the current block and begin the next one."""
        block = self.block
        block.position = position
        self.__post_init__()
        return block


def _name_of(record: Mapping[str, Any], field: str, reason: str) -> str:
    value = record.get(field)
    # bool is an int to Python
    if isinstance(value, str | int) and not isinstance(value, bool) and value != "" and not _half_pair(str(value)):
        return str(value)
    raise BadRecord(reason, f"{field!r} is {str(value)[:100]!r}, not a string or integer")


def _title_of(record: Mapping[str, Any], field: str) -> str | None:
    """Return the title on one line: each run of white space is one space; None if there is none, or a blank one."""
    title = record.get(field)
    if title is None:
        return None
    if not isinstance(title, str):
        raise BadRecord("not_a_string", f"{field!r} is of type {type(title).__name__}")
    if half := _half_pair(title):
        raise BadRecord("invalid_utf8", f"{field!r} holds {half}, half of a surrogate pair")
    return " ".join(title.split()) or None


def _escape(text: str) -> str:
    """Escape the lone surrogates that names in a text may contain, so that it can be encoded."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _half_pair(text: str) -> str | None:
    """Return the first lone surrogate, escaped; JSON may contain one as ``\\udXXX``, but UTF-8 cannot."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ascii(text[error.start])
    return None


Plan = Callable[[str, int], list[Cut]]
Read = Callable[[Range, BlockBuilder], Iterator[int]]
DOCUMENT_ID = "document_id"  # field of a document's id in data sets of tasks


@dataclass(frozen=True)
class Reader:
    """Functions that split and read the files of a format, and properties of the format.

    Attributes:
        plan: splits a file into ranges of about the given number of bytes.
        read: adds the records of a range to a block; repeatedly yields the bytes of the range read so far.
        fields: returns the fields of the first records, each with the amount of text in it; None for a format without
            fields.
        text_field: name of the text's field if the options leave it at ``text``.
        suffixes: suffixes of the files read in this format by default.
        native: True if native code, which damaged or malicious files can crash, reads the files; such files are never
            compressed as a whole.
        native_suffixes: suffixes of files for which ``native`` is true, if not for all.
        published: True for a data set as its authors publish it.
        beside: regular expression of the names of published files without records: summaries, tables of contents.
        records: regular expression of the names of files with records; others in a folder are skipped. Empty for all.
        own_ids: True if the reader gives each document an id, by which repeated documents are left out.
        keyed_by_place: True for pairs about documents of a format of the same name, whose ids have the file's path.
    """

    plan: Plan
    read: Read
    fields: Callable[[str], dict[str, int]] | None = None
    text_field: str = "text"
    suffixes: tuple[str, ...] = ()
    native: bool = False
    native_suffixes: tuple[str, ...] = ()
    published: bool = False
    beside: str = ""
    records: str = ""
    own_ids: bool = False
    keyed_by_place: bool = False

    def resolve(self, options: ReadOptions) -> ReadOptions:
        """Return the options with the format's own field for the text, and for the id if the reader gives one."""
        if self.own_ids and options.id_field is None:
            options = replace(options, id_field=DOCUMENT_ID)
        if options.text_field == "text" != self.text_field:
            options = replace(options, text_field=self.text_field)
        return options
