"""Input and output of readers: ranges, options, blocks of good records, rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, Flag, utf8
from corpora.readers.formats import FORMATS
from corpora.readers.tasks import DATA_SETS
from corpora.storage.stores.local_disk import DanglingLink, NotAFile
from corpora.text.preprocessing import STEPS

BLOCK_BYTES = 8 << 20
RAW_BYTES = 64 << 10  # bytes kept of a bad record
PAIRS_OF = "pairs:"  # prefix of a data set's name, to read its pairs and not its documents


@dataclass(frozen=True)
class Range:
    """A part of a file that can be read on its own; can be converted to JSON and back.

    Attributes:
        path: the file.
        format: one of ``FORMATS``, resolved.
        start, stop: half-open, in the format's unit: bytes of plain lines and tar archives, Parquet row groups, Arrow
            record batches, members of a zip archive, 0..1 for files that are read as a whole.
        bytes: number of the file's bytes in the range, for balancing tasks.
        size: bytes of the file when the range was planned; None if it was not a readable file.
    """

    path: str
    format: str
    start: int
    stop: int
    bytes: int
    size: int | None


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


_DOCUMENT_FORMATS = (*FORMATS, *(name for name in DATA_SETS if name not in FORMATS))
_FORMAT_HELP = f"{', '.join(_DOCUMENT_FORMATS)} (default: by file name)"
SUBSET_HELP = "data set of a collection such as SCROLLS, e.g. qasper (default: by the name of a folder or archive)"
_PREPROCESS_HELP = f"step applied to each text: {', '.join(STEPS)}; repeatable, in order"


@dataclass(frozen=True, kw_only=True)
class PairFields:
    """Names of the fields of pairs in JSON lines and Parquet files of your own (``--format pairs``).

    Attributes:
        query_field: field with the question (default: query, question).
        reference_field: field with the answer, or a list of them (default: references, reference, answers, answer).
        options_field: field with a list of texts to choose from.
        pair_id_field: field with the pair's id; equal ids are one pair with several answers (default: id, or a hash of
            documents and query).
        split_field: field with train, validation or test (default: split, or the file's name).
    """

    query_field: Annotated[str | None, Flag(convert=utf8)] = None
    reference_field: Annotated[str | None, Flag(convert=utf8)] = None
    options_field: Annotated[str, Flag(convert=utf8)] = "options"
    pair_id_field: Annotated[str | None, Flag(convert=utf8)] = None
    split_field: Annotated[str | None, Flag(convert=utf8)] = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading raw files; can be converted to JSON and back.

    Attributes:
        format: format of the files (default: by file name).
        text_field: field or column with the text, or with a list of texts, which are a cluster of related documents.
        id_field: field or column with an id of your own (default: the record's place).
        max_record_bytes: longer records are rejected; no more than this of a line is held in memory.
        cluster_field: field or column that names a record's cluster of related documents; null for none.
        title_field: field or column with a title, which is stored beside the text; null for none.
        min_characters: texts with fewer characters, once preprocessed, are left out.
        min_tokens: texts with fewer tokens are left out.
        preprocess: steps applied to each text, in order; repeatable.
        separator: line between two stories of format ``stories`` (default: a blank line).
        subset: data set of a collection such as SCROLLS.
        pairs: names of the fields of pairs, if pairs are read.
    """

    format: Annotated[str | None, Flag(help=_FORMAT_HELP)] = None
    text_field: Annotated[str, Flag(convert=utf8)] = "text"
    id_field: Annotated[str | None, Flag(convert=utf8)] = None
    max_record_bytes: int = 64 << 20
    cluster_field: Annotated[str | None, Flag(convert=utf8)] = None
    title_field: Annotated[str | None, Flag(convert=utf8)] = None
    min_characters: int = 0
    min_tokens: int = 0
    preprocess: Annotated[tuple[str, ...], Flag(metavar="STEP", help=_PREPROCESS_HELP)] = ()
    separator: Annotated[str | None, Flag(metavar="LINE", convert=utf8)] = None
    subset: Annotated[str | None, Flag(metavar="NAME", help=SUBSET_HELP)] = None
    pairs: Annotated[PairFields, NO_FLAG] = PairFields()

    def __post_init__(self) -> None:
        object.__setattr__(self, "preprocess", tuple(self.preprocess))  # a list in JSON and TOML
        if isinstance(self.pairs, dict):
            object.__setattr__(self, "pairs", PairFields(**self.pairs))  # from JSON
        if self.format is not None and self.format not in (
            *_DOCUMENT_FORMATS,
            *(PAIRS_OF + name for name in DATA_SETS),
        ):
            known = ", ".join(_DOCUMENT_FORMATS)
            raise FarspanError(f"--format {self.format}: unknown; give one of {known}")
        if self.max_record_bytes < 1:
            raise FarspanError(f"--max-record-bytes {self.max_record_bytes}: give a positive number of bytes")
        if "" in (self.text_field, self.id_field, self.cluster_field, self.title_field):
            raise FarspanError("--text-field, --id-field, --cluster-field, --title-field: give the name of a field")
        for flag, least in (("--min-characters", self.min_characters), ("--min-tokens", self.min_tokens)):
            if least < 0:
                raise FarspanError(f"{flag} {least}: give 0 or more")
        if unknown := [name for name in self.preprocess if name not in STEPS]:
            raise FarspanError(f"--preprocess {unknown[0]}: unknown; give names among {', '.join(STEPS)}")
        if self.separator is not None and (self.format != "stories" or not self.separator.strip()):
            raise FarspanError(
                f"--separator {self.separator!r}: the line between two stories, for --format stories only"
            )

    @property
    def named_fields(self) -> list[tuple[str, str]]:
        """(flag, name) of the fields that the options name in addition to the text."""
        fields = (
            ("--id-field", self.id_field),
            ("--cluster-field", self.cluster_field),
            ("--title-field", self.title_field),
        )
        return [(flag, name) for flag, name in fields if name is not None]


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected record.

    Attributes:
        path: the file.
        key: the record's place, as in ``RecordBlock.keys``.
        reason: invalid_utf8, broken_json, not_an_object, missing_text, null_text, not_a_string, empty_text, missing_id,
            too_long, truncated_file, unreadable_file, crashed_reader, dangling_link or not_a_file; missing_cluster,
            not_a_cluster, empty_cluster; unsafe_name, duplicate_name, no_member; broken_xml, unsafe_xml;
            broken_dialogue; special_token, if the tokenizer yields one for the text.
        raw: the first 64 KiB of the record, as far as they were read.
        detail: explanation of the fault.
    """

    path: str
    key: str
    reason: str
    raw: bytes
    detail: str


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Consecutive records of a range, about 8 MiB, or one longer record.

    Attributes:
        texts: texts of the good records.
        keys: place of each record in its file, independent of ranges: byte offset of a line in the (decompressed) file,
            row number in a table, ``0`` for a whole file, name of an archive member; for a document of a cluster, the
            cluster's place, a dot and its number in the cluster.
        ids: the user's own id of each record; None without ``id_field``.
        clusters: name of each record's cluster: the value of ``cluster_field`` or the cluster's place in the file; None
            for a record without a cluster.
        rejects: the bad records of the block.
        filtered: good records left out by ``preprocess`` and ``min_characters``.
        position: bytes of the range read so far, for showing progress.
        damaged: number of places where the file is truncated or damaged, each with a reject of its own.
        lost: bytes of the file that were therefore not read or not trusted, not counting the missing end of a truncated
            file.
        titles: title of each record, on one line; None for a record without a title, and as a whole without
            ``title_field``.
    """

    texts: list[str]
    keys: list[str]
    ids: list[str] | None
    clusters: list[str | None]
    rejects: list[Reject]
    filtered: int
    position: int
    damaged: int = 0
    lost: int = 0
    titles: list[str | None] | None = None

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
    """A file that cannot be read from the record ``key`` on.

    Attributes:
        lost: bytes of the range that are discarded; None for all after the last position.
    """

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
        self.lost = error.lost if isinstance(error, DamagedStream) else None


class BadRecord(Exception):
    """A record that is rejected, with reason and detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
