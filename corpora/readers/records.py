"""What a reader is asked for and what it hands out: ranges, options, blocks of good records, dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from corpora.errors import FarspanError

FORMATS = ("jsonl", "parquet", "arrow", "text", "lines", "huggingface")
BLOCK_BYTES = 8 << 20
RAW_BYTES = 64 << 10  # kept of a bad record
_RECORD_BYTES = 100  # what a record takes beside its text


@dataclass(frozen=True)
class Range:
    """A part of a file that can be read on its own; survives JSON.

    Attributes:
        path: the file.
        format: one of ``FORMATS``, resolved.
        start, stop: half-open, in the format's unit: bytes of plain lines, Parquet row groups, Arrow record batches,
            0..1 for what is read in one go.
        bytes: of the file that the range covers, to weigh tasks.
    """

    path: str
    format: str
    start: int
    stop: int
    bytes: int


class Cut(NamedTuple):
    """``start``, ``stop`` and ``bytes`` of a ``Range``."""

    start: int
    stop: int
    bytes: int


def group(sizes: Sequence[int], target_bytes: int) -> list[Cut]:
    """Neighbouring pieces of the given sizes, together up to ``target_bytes`` or a single larger one."""
    cuts: list[Cut] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > target_bytes:
            cuts.append(Cut(start, index, total))
            start, total = index, 0
        total += size
    return [*cuts, Cut(start, len(sizes), total)]


@dataclass(frozen=True)
class ReadOptions:
    """How records are read; survives JSON.

    Attributes:
        format: one of ``FORMATS``, or None to go by the file's name.
        text_field: field or column with the text; plain text has none.
        id_field: field or column with an id of the user's own.
        max_record_bytes: a longer record is rejected, and of long lines never more than this is held in memory.
        cluster_field: field or column with the name of the cluster of related documents that a record belongs to.
        min_characters, min_tokens: shorter texts are left out and counted as filtered; tokens count where a job makes
            them.
        preprocess: names in ``corpora.preprocessing.STEPS``, applied to each text in this order.
    """

    format: str | None = None
    text_field: str = "text"
    id_field: str | None = None
    max_record_bytes: int = 64 << 20
    cluster_field: str | None = None
    min_characters: int = 0
    min_tokens: int = 0
    preprocess: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise FarspanError(f"--format {self.format}: unknown; give one of {', '.join(FORMATS)}")
        if self.max_record_bytes < 1:
            raise FarspanError(f"--max-record-bytes {self.max_record_bytes}: give a positive number of bytes")
        if not self.text_field or self.id_field == "":
            raise FarspanError("--text-field, --id-field: give the name of a field")
        if self.format in ("text", "lines") and self.id_field is not None:
            raise FarspanError(f"--id-field {self.id_field}: plain text has no fields; leave it out")


@dataclass(frozen=True, slots=True)
class Reject:
    """A dead letter.

    Attributes:
        path: the file.
        key: the record's place, as in ``RecordBlock.keys``.
        reason: invalid_utf8, broken_json, not_an_object, missing_text, null_text, not_a_string, empty_text, missing_id,
            too_long, truncated_file or unreadable_file.
        raw: the record's first 64 KiB, as far as they are known.
        detail: what exactly is wrong.
    """

    path: str
    key: str
    reason: str
    raw: bytes
    detail: str


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Consecutive records of a range, about 8 MiB, or one record where that is longer.

    Attributes:
        texts: of the good records.
        keys: place of each in its file, whatever the ranges: byte offset of a line in the (decompressed) file, row
            number in a table, ``0`` for a whole file.
        ids: the user's own id of each, None without ``id_field``.
        rejects: the bad records among them.
        position: bytes of the range read so far, for showing progress.
    """

    texts: list[str]
    keys: list[str]
    ids: list[str] | None
    rejects: list[Reject]
    position: int

    @property
    def read(self) -> int:
        """Records, good and bad."""
        return len(self.texts) + len(self.rejects)


class DamagedFile(Exception):
    """Nothing more can be read of a file, from the record ``key`` on."""

    def __init__(self, error: Exception, key: int, raw: bytes = b"") -> None:
        super().__init__(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        self.reason = "truncated_file" if isinstance(error, EOFError) else "unreadable_file"
        self.key, self.raw = str(key), raw


class BadRecord(Exception):
    """A record that becomes a dead letter."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass
class BlockBuilder:
    """Judges records and gathers them into blocks."""

    path: str
    options: ReadOptions
    _texts: list[str] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)
    _ids: list[str] = field(default_factory=list)
    _rejects: list[Reject] = field(default_factory=list)
    _bytes: int = 0

    @property
    def full(self) -> bool:
        return self._bytes >= BLOCK_BYTES

    def add(self, key: int, record: Mapping[str, Any], raw: bytes) -> None:
        """Keep the text of ``record``, or reject it and keep the beginning of ``raw``."""
        name = self.options.text_field
        text = record.get(name)
        if isinstance(text, str) and text and not text.isspace():
            if half := _half_pair(text):
                self.reject(key, "invalid_utf8", raw, f"{name!r} holds {half}, half of a surrogate pair")
            elif self.options.id_field is None or self._add_id(key, record, raw):
                self._texts.append(text)
                self._keys.append(str(key))
                self._bytes += len(text) + _RECORD_BYTES
        elif name not in record:
            self.reject(key, "missing_text", raw, f"no field {name!r}; its fields: {', '.join(record)[:1000]}")
        elif text is None:
            self.reject(key, "null_text", raw, f"{name!r} is null")
        elif isinstance(text, str):
            self.reject(key, "empty_text", raw, f"{name!r} is empty or blank")
        else:
            self.reject(key, "not_a_string", raw, f"{name!r} is of type {type(text).__name__}")

    def _add_id(self, key: int, record: Mapping[str, Any], raw: bytes) -> bool:
        own = record.get(self.options.id_field or "")
        # bool is an int to Python
        if isinstance(own, str | int) and not isinstance(own, bool) and own != "" and not _half_pair(str(own)):
            self._ids.append(str(own))
            return True
        self.reject(key, "missing_id", raw, f"{self.options.id_field!r} is {str(own)[:100]!r}, not a string or integer")
        return False

    def reject(self, key: int | str, reason: str, raw: bytes, detail: str) -> None:
        raw = raw[:RAW_BYTES]
        detail = detail.encode(errors="backslashreplace").decode()  # a name in it may hold half a surrogate pair
        self._rejects.append(Reject(self.path, str(key), reason, raw, detail))
        self._bytes += len(raw) + _RECORD_BYTES

    def take(self, position: int) -> RecordBlock:
        """The block so far; begins the next one."""
        ids = None if self.options.id_field is None else self._ids
        block = RecordBlock(self._texts, self._keys, ids, self._rejects, position)
        self._texts, self._keys, self._ids, self._rejects, self._bytes = [], [], [], [], 0
        return block


def _half_pair(text: str) -> str | None:
    """The first lone surrogate, escaped: JSON may hold it as ``\\udXXX``, but no UTF-8 can."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ascii(text[error.start])
    return None
