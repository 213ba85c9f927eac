"""Options of ``farspan pairs``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from corpora.errors import FarspanError, nearest
from corpora.options import UNRECORDED, Flag, utf8
from corpora.readers.formats import FORMATS
from corpora.readers.options import PAIRS_OF, SUBSET_HELP, PairFields, ReadOptions
from corpora.readers.tasks import DATA_SETS
from pipelines.documents.options import Inputs
from pipelines.options import Compression, DocumentsFolder, ErrorBudget, Output, Seed

_FORMAT_HELP = f"data set: {', '.join(DATA_SETS)} (default: pairs, JSON lines or Parquet of your own)"


@dataclass(frozen=True, kw_only=True)
class RawPairs:
    """Raw files of pairs, with options of reading that match those of ``farspan documents``.

    Attributes:
        input: file, folder or quoted glob; NAME is the source in the ids of its documents; repeatable.
        text_field: field or column of the documents' texts, for --format pairs (default: document or documents), arxiv
            and pubmed (article_text, or sections for a document each).
        id_field: field or column of the documents' ids, for --format pairs (default: document_id, or the text's hash).
        max_record_bytes: longer records are rejected.
        fields: names of the fields of pairs.
    """

    input: Annotated[tuple[str, ...], Flag(metavar="[NAME=]PATTERN")] = ()
    fields: PairFields = field(default_factory=PairFields)
    format: Annotated[str, Flag(help=_FORMAT_HELP)] = "pairs"
    subset: Annotated[str | None, Flag(metavar="NAME", help=SUBSET_HELP)] = None
    text_field: Annotated[str, Flag(convert=utf8)] = "text"
    id_field: Annotated[str | None, Flag(convert=utf8)] = None
    max_record_bytes: Annotated[int, Flag(least=1)] = 64 << 20

    @property
    def read(self) -> ReadOptions:
        """Options of reading the pairs."""
        if self.format not in DATA_SETS:
            plain = "; JSON lines and Parquet are --format pairs" if self.format in FORMATS else ""
            hint = plain or nearest(self.format, DATA_SETS)
            raise FarspanError(
                f"--format {self.format}: no data set of pairs{hint}; give one of {', '.join(DATA_SETS)}"
            )
        return ReadOptions(
            format=PAIRS_OF + self.format,
            text_field=self.text_field,
            id_field=self.id_field,
            max_record_bytes=self.max_record_bytes,
            subset=self.subset,
            pairs=self.fields,
        )


@dataclass(frozen=True, kw_only=True)
class Probing:
    """Options of making pairs, in place of reading them.

    Attributes:
        probe: kind of question to make: ruler:TASK or babilong:qaN (docs/probes.md); repeatable. Its texts become
            documents in OUTPUT.documents.
        lengths: positions of the sources, separated by commas.
        depths: depths of the fact that is asked for, in percent of the text, separated by commas, for probes with one
            (default: 0,10 and so on to 100).
        examples: number of examples of each probe and length.
        questions: pairs about the documents, for ruler:qa_1 and ruler:qa_2.
    """

    probe: Annotated[tuple[str, ...], Flag(metavar="NAME")] = ()
    lengths: Annotated[tuple[int, ...], Flag(metavar="N,N", separated=True, least=64, most=1 << 24)] = ()
    depths: Annotated[tuple[int, ...], Flag(metavar="N,N", separated=True, least=0, most=100)] = ()
    examples: Annotated[int, Flag(least=1)] = 100
    questions: Annotated[str | None, Flag(metavar="DIR"), UNRECORDED] = None

    def __post_init__(self) -> None:
        if self.probe:
            from objectives.probes import load_probe  # slow to import, and not needed for the flags

            for name in self.probe:
                load_probe(name)
        if self.probe and not self.lengths:
            raise FarspanError("--probe: needs --lengths, the positions of the sources, e.g. --lengths 4096,8192")
        lists: dict[str, tuple[Any, ...]] = {"probe": self.probe, "lengths": self.lengths, "depths": self.depths}
        for flag, several in lists.items():
            if len(set(several)) < len(several):
                raise FarspanError(f"--{flag} {','.join(map(str, several))}: names one twice; give each once")


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Options of ``farspan pairs``.

    Attributes:
        inputs: raw files, with options of reading.
        split: split of each pair: that of the data (a field or the file's name; test for probes), one for all, or one
            drawn for each document, so that no document is in two splits.
        validation: share of documents drawn for validation.
        test: share of documents drawn for test.
        task_bytes: raw bytes per task and shard.
        task_files: maximum number of files per task and shard.

    Examples:
        farspan documents --input qasper=scrolls/qasper --format scrolls --tokenizer bart --output documents
        farspan pairs --documents documents --input qasper=scrolls/qasper --format scrolls --output pairs
        farspan pairs --documents documents --input mine='mine/*.jsonl' --split draw --output pairs
        farspan pairs --documents documents --probe ruler:vt --lengths 4096,16384 --output probes
    """

    inputs: Inputs = ()
    documents: DocumentsFolder
    output: Output
    split: Literal["data", "draw", "train", "validation", "test"] = "data"
    validation: float = 0.1
    test: float = 0.1
    seed: Seed = 0
    task_bytes: Annotated[int, Flag(least=1)] = 128 << 20
    task_files: Annotated[int, Flag(least=1)] = 2048
    error_budget: ErrorBudget = 0.01
    compression: Compression = None

    def __post_init__(self) -> None:
        if not (self.validation >= 0 and self.test >= 0 and self.validation + self.test < 1):
            raise FarspanError(
                f"--validation {self.validation}, --test {self.test}: give shares of documents, together less than 1"
            )
