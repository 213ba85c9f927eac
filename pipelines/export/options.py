"""Options of ``farspan export``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.options import UNRECORDED, Flag
from pipelines.options import Output, SplitName

FormatName = Literal[
    "megatron", "fairseq", "mds", "llm-foundry", "olmo", "datatrove", "litdata", "parquet", "megatron-bridge"
]


@dataclass(frozen=True, kw_only=True)
class Export:
    """Options of ``farspan export``.

    Documents end with the tokenizer's <eos>. In formats whose readers cut files into rows of equal length, corpus rows
    are padded to that length, so they stay rows. `docs/export.md` has a table of formats.

    Attributes:
        artefact: folder of documents, a corpus or a mask set.
        to: format of the files.
        unit: a file's items, which its readers shuffle: rows of the corpus, or parts of documents (default: rows;
            documents for documents).
        split: documents to use, if the artefact has documents.
        layout: rendering of a mask set: source and target apart, or as one row with loss on the target (default: apart
            where the format has columns for both).
        length: sequence length of the trainer, to which rows are padded (default: that of the corpus; for masks, the
            longest source and target).
        dtype: type of ids (default: the smallest that the format's readers choose for the vocabulary).
        bos: put the tokenizer's <bos> before each document.
        eos_id: id of the end of a document (default: the tokenizer's <eos>).
        bos_id: id of its beginning (default: the tokenizer's <bos>).
        pad_id: id of padding (default: the tokenizer's <pad>).
        files: number of files, or of groups of files, at most one per shard (default: one per shard).
        corpus: corpus of a mask set, if it has moved since the masks were made.

    Examples:
        farspan export corpus --to megatron --output megatron
        farspan export documents --to olmo --output olmo
        farspan export corpus --to mds --bos --output mds
        farspan export masks --to parquet --layout stream --output streams
    """

    artefact: Annotated[str, Flag(positional=True), UNRECORDED]
    to: FormatName
    output: Output
    unit: Literal["rows", "documents"] | None = None
    split: SplitName = "train"
    layout: Literal["seq2seq", "stream"] | None = None
    length: Annotated[int | None, Flag(metavar="TOKENS", least=1)] = None
    dtype: Literal["uint8", "uint16", "int32", "uint32", "int64"] | None = None
    bos: bool = False
    eos_id: Annotated[int | None, Flag(metavar="ID", least=0)] = None
    bos_id: Annotated[int | None, Flag(metavar="ID", least=0)] = None
    pad_id: Annotated[int | None, Flag(metavar="ID", least=0)] = None
    files: Annotated[int | None, Flag(metavar="N", least=1)] = None
    corpus: Annotated[str | None, Flag(metavar="DIR"), UNRECORDED] = None
