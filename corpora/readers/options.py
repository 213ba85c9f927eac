"""Options for reading raw files, which are flags of every command that reads some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, Flag, utf8
from corpora.readers.formats import FORMATS
from corpora.readers.tasks import DATA_SETS
from corpora.text.preprocessing import STEPS

PAIRS_OF = "pairs:"  # prefix of a data set's name, to read its pairs and not its documents
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
    """Options for reading raw files.

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
    max_record_bytes: Annotated[int, Flag(least=1)] = 64 << 20
    cluster_field: Annotated[str | None, Flag(convert=utf8)] = None
    title_field: Annotated[str | None, Flag(convert=utf8)] = None
    min_characters: Annotated[int, Flag(least=0)] = 0
    min_tokens: Annotated[int, Flag(least=0)] = 0
    preprocess: Annotated[tuple[str, ...], Flag(metavar="STEP", help=_PREPROCESS_HELP)] = ()
    separator: Annotated[str | None, Flag(metavar="LINE", convert=utf8)] = None
    subset: Annotated[str | None, Flag(metavar="NAME", help=SUBSET_HELP)] = None
    pairs: Annotated[PairFields, NO_FLAG] = PairFields()

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in (
            *_DOCUMENT_FORMATS,
            *(PAIRS_OF + name for name in DATA_SETS),
        ):
            known = ", ".join(_DOCUMENT_FORMATS)
            raise FarspanError(f"--format {self.format}: unknown; give one of {known}")
        if "" in (self.text_field, self.id_field, self.cluster_field, self.title_field):
            raise FarspanError("--text-field, --id-field, --cluster-field, --title-field: give the name of a field")
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
