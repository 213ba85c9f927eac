"""Options of the jobs that read raw text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from corpora.errors import FarspanError
from corpora.options import NO_FLAG, UNRECORDED, Flag
from corpora.readers.options import ReadOptions
from corpora.tokenizers.training import KINDS
from pipelines.options import Compression, ErrorBudget, Folder, Output, Seed

if TYPE_CHECKING:
    from pipelines.documents.inputs import Input
else:
    Input = Any  # slow to import, and not needed for the flags

Inputs = Annotated[tuple[Input, ...], NO_FLAG, UNRECORDED]


@dataclass(frozen=True, kw_only=True)
class RawText:
    """Raw files to read.

    Attributes:
        input: file, folder or quoted glob, local or on a file system of Arrow or fsspec, or hf:DATASET:CONFIG:SPLIT for
            a data set that load_dataset opens; NAME is the source in ids; repeatable.
        read: options of reading records.
    """

    input: Annotated[tuple[str, ...], Flag(metavar="[NAME=]PATTERN")]
    read: ReadOptions


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Options of ``farspan documents``.

    Attributes:
        inputs: raw files, with options of reading.
        tokenizer: SentencePiece model, tokenizer.json, folder or Hugging Face hub name.
        sentences: sentence splitter: nupunkt, nltk, spacy or spacy:MODEL.
        held_out: share of documents reserved for evaluation.
        task_bytes: raw bytes per task and shard.
        task_files: maximum number of files per task and shard.
        license: licence of the text for the cards of the documents and of all artefacts made from them, e.g.
            cc-by-sa-4.0.
        language: language of the text for the same cards, e.g. en; repeatable.

    Examples:
        farspan documents --input c4='c4/en/*.json.gz' --tokenizer t5.model --output docs
    """

    inputs: Inputs = ()
    output: Output
    tokenizer: Annotated[str, UNRECORDED]
    sentences: str = "nupunkt"
    held_out: float = 0.0
    seed: Seed = 0
    task_bytes: Annotated[int, Flag(least=1)] = 32 << 20
    task_files: Annotated[int, Flag(least=1)] = 2048
    error_budget: ErrorBudget = 0.01
    compression: Compression = None
    license: Annotated[str | None, Flag(metavar="NAME"), UNRECORDED] = None
    language: Annotated[tuple[str, ...], Flag(metavar="CODE"), UNRECORDED] = ()

    def __post_init__(self) -> None:
        named = {"license": [self.license] if self.license is not None else [], "language": self.language}
        for flag, names in named.items():
            if wrong := [name for name in names if not re.fullmatch(r"[\w.+-]{1,64}", name)]:
                raise FarspanError(f"--{flag} {wrong[0]}: give a name of letters, digits, dots and dashes")


@dataclass(frozen=True, kw_only=True)
class TokenizerTraining:
    """Options of ``farspan tokenizer train``.

    Attributes:
        kind: kind of tokenizer.
        vocab_size: number of ids.
        output: folder to make.
        text: raw files to train on.
    """

    output: Folder
    text: RawText
    kind: Annotated[str, Flag(choices=tuple(KINDS))] = "byte-level-bpe"
    vocab_size: int = 32_000
