"""Input and output of readers: ranges, blocks of good records, rejects, damage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from corpora.storage.stores.local_disk import DanglingLink, NotAFile

BLOCK_BYTES = 8 << 20
RAW_BYTES = 64 << 10  # bytes kept of a bad record
RESTORE = (
    "put it back as it was, with its modification time, and run the same command again, or give --output a new folder"
)
"""Remedy in errors about an input that changed."""


@dataclass(frozen=True)
class Range:
    """A part of a file that can be read on its own; can be converted to JSON and back.

    It begins at ``start`` and ends before ``stop``, in the format's unit: bytes of plain lines and tar archives,
    Parquet row groups, Arrow record batches, members of a zip archive, 0..1 for files that are read as a whole.
    """

    path: str
    format: str  # one of ``FORMATS``, resolved
    start: int
    stop: int
    bytes: int  # of the file in the range, for balancing tasks
    size: int | None  # bytes of the file when the range was planned; None if it was not a readable file
    version: str = ""  # with ``instance``, the file's state by ``corpora.storage.files.state``
    instance: str = ""

    @property
    def is_whole(self) -> bool:
        """True if the range is known to be the whole file; a table's range is measured in uncompressed bytes."""
        return self.start == 0 and self.bytes == self.size


class Cut(NamedTuple):
    """``start``, ``stop`` and ``bytes`` of a ``Range``."""

    start: int
    stop: int
    bytes: int


def group(sizes: Sequence[int], target_bytes: int) -> list[Cut]:
    """Group consecutive pieces of the given sizes up to ``target_bytes``; a larger piece is alone."""
    cuts: list[Cut] = []
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and total + size > target_bytes:
            cuts.append(Cut(start, index, total))
            start, total = index, 0
        total += size
    return [*cuts, Cut(start, len(sizes), total)]


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected record.

    Its reason is a word: invalid_utf8, broken_json, not_an_object, missing_text, null_text, not_a_string, empty_text,
    missing_id, too_long, truncated_file, unreadable_file, crashed_reader, dangling_link, not_a_file, no_record;
    missing_cluster, not_a_cluster, empty_cluster; unsafe_name, duplicate_name, no_member; broken_xml, unsafe_xml;
    broken_dialogue; special_token, if the tokenizer yields one for the text; and those of data sets of tasks.
    """

    path: str
    key: str  # the record's place, as in ``RecordBlock.keys``
    reason: str
    raw: bytes  # the first 64 KiB of the record, as far as they were read
    detail: str


@dataclass(slots=True)
class RecordBlock:
    """Consecutive records of a range, about 8 MiB, or one longer record.

    A key is the place of a record in its file, independent of ranges: byte offset of a line in the (decompressed) file,
    row number in a table, ``0`` for a whole file, name of an archive member; for a document of a cluster, the cluster's
    place, a dot and its number in the cluster. ``lost`` counts all bytes of a truncated file, because nobody knows how
    much is missing.
    """

    texts: list[str] = field(default_factory=list)  # of the good records, as the other columns
    keys: list[str] = field(default_factory=list)
    ids: list[str] | None = None  # the user's own; None without ``id_field``
    clusters: list[str | None] = field(default_factory=list)  # value of ``cluster_field``, or the cluster's place
    rejects: list[Reject] = field(default_factory=list)
    filtered: int = 0  # good records left out by ``preprocess`` and ``min_characters``
    position: int = 0  # bytes of the range read so far, for showing progress
    damaged: int = 0  # places where the file is truncated, damaged, or without any good record
    lost: int = 0  # bytes of the file that were therefore not read or are not trusted
    titles: list[str | None] | None = None  # each on one line; None without ``title_field``

    @property
    def read(self) -> int:
        """Number of records, good and bad; each document of a cluster is one."""
        return len(self.texts) + len(self.rejects) + self.filtered


class CrashedReader(OSError):
    """The process that read a file crashed."""


class DamagedStream(OSError):
    """Compressed data failed its checksum; its last ``lost`` bytes are not trusted."""

    def __init__(self, reason: str, lost: int) -> None:
        super().__init__(reason)
        self.lost = lost


class DamagedFile(Exception):
    """A file that cannot be read from the record ``key`` on."""

    def __init__(self, error: Exception, key: int | str, raw: bytes = b"") -> None:
        super().__init__(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
        reasons = {
            EOFError: "truncated_file",
            DanglingLink: "dangling_link",
            NotAFile: "not_a_file",
            CrashedReader: "crashed_reader",
        }
        self.reason = next((name for kind, name in reasons.items() if isinstance(error, kind)), "unreadable_file")
        self.key, self.raw = str(key), raw
        # bytes of the range that are discarded; None for all after the last position
        self.lost = error.lost if isinstance(error, DamagedStream) else None


class BadRecord(Exception):
    """A record that is rejected, with reason and detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def missing_field(record: Mapping[str, Any], name: str, reason: str = "missing_text") -> BadRecord:
    """Return the error for a record without the field ``name``."""
    return BadRecord(reason, f"no field {name!r}; its fields: {', '.join(record)[:1000]}")
