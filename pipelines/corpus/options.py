"""Options of the jobs that build a corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from corpora.linking.options import Linking
from corpora.options import UNRECORDED, Flag, check_choices
from corpora.packing.options import Packing, RelatedRows
from pipelines.options import (
    FAN_IN,
    Compression,
    DocumentsFolder,
    FanIn,
    Folder,
    Output,
    Seed,
    Shards,
    Split,
    SplitName,
    check_shards,
)

# these kinds of corpus cut documents at the end of a row or not at all
_ROOM = Flag(without=("split_documents", "drop_ragged_tail", "min_document_tokens"))


@dataclass(frozen=True, kw_only=True)
class RandomCorpus:
    """Options of ``farspan corpus random``.

    Attributes:
        packing: capacity of a sequence and the cutting of documents.
    """

    documents: DocumentsFolder
    output: Output
    packing: Packing
    seed: Seed = 0
    split: Split = "train"
    shards: Shards = 0
    compression: Compression = None
    fan_in: FanIn = FAN_IN


@dataclass(frozen=True, kw_only=True)
class LinkedCorpus:
    """Options of ``farspan corpus linked``.

    Attributes:
        neighbours: folder made by ``farspan neighbours`` from the documents; without it the earlier stages run first.
        packing: capacity of a sequence, and the concatenation of leftovers.
        linking: selection and order of the documents in a sequence.
        leftovers: concatenate documents that no linked sequence uses at random, or leave them out; near-duplicates of
            a used document are left out in either case.
    """

    documents: DocumentsFolder
    neighbours: Folder
    output: Output
    packing: Annotated[Packing, _ROOM]
    linking: Linking = field(default_factory=Linking)
    leftovers: Literal["concatenate", "leave-out"] = "concatenate"
    seed: Seed = 0
    shards: Shards = 0
    compression: Compression = None
    fan_in: FanIn = FAN_IN

    def __post_init__(self) -> None:
        check_choices(self)
        check_shards(self.shards)


@dataclass(frozen=True, kw_only=True)
class LongCorpus:
    """Options of ``farspan corpus long``.

    Attributes:
        recipe: TOML file with sources, weights, budget and sequence length (``pipelines.corpus.mixture_recipe``).
    """

    recipe: Annotated[str, Flag(positional=True, metavar="RECIPE.toml"), UNRECORDED]
    output: Output
    seed: Seed = 0
    split: Split = "train"
    shards: Shards = 0
    compression: Compression = None
    fan_in: FanIn = FAN_IN


@dataclass(frozen=True, kw_only=True)
class RelatedCorpus:
    """Options of ``farspan corpus related``.

    Attributes:
        packing: capacity of a row.
        rows: division of a row among documents.
        neighbours: folder made by ``farspan neighbours`` (default: the documents' own clusters).
        min_similarity: minimum similarity of a neighbour to its seed (default: none).
        max_jaccard: neighbours that share more of their word 5-grams with the seed are left out as near-duplicates.
        split: documents to use (default: those of the neighbours, or train).
    """

    documents: DocumentsFolder
    output: Output
    packing: Annotated[Packing, _ROOM]
    rows: RelatedRows = field(default_factory=RelatedRows)
    neighbours: Annotated[str | None, Flag(metavar="DIR")] = None
    min_similarity: float | None = None
    max_jaccard: float | None = Linking.max_jaccard
    seed: Seed = 0
    split: SplitName | None = None
    shards: Shards = 0
    compression: Compression = None
    fan_in: FanIn = FAN_IN
