"""Options of the jobs that build a corpus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from corpora.errors import FarspanError
from corpora.linking.options import Linking
from corpora.options import UNRECORDED, Flag, list_changed, list_fields
from corpora.packing.options import Packing, RelatedRows
from pipelines.options import FAN_IN, Compression, DocumentsFolder, FanIn, Output, Seed, Shards, Split, SplitName
from pipelines.retrieval.options import CentroidOptions, Embedding, SearchOptions

# for kinds of corpus with their own rules for cutting documents
_ROOM = Flag(without=("packing", "drop_ragged_tail", "min_document_tokens"))


def _refuse_policy(packing: Packing, corpus: str) -> None:
    """Refuse a policy for a kind of corpus with its own; only Python can give one, as the flag is left out."""
    if packing.packing != Packing.packing:
        raise FarspanError(
            f"packing {packing.packing!r}: has no effect in a {corpus} corpus, which arranges its rows by its own "
            "rules; leave it out, or build a random corpus"
        )


@dataclass(frozen=True, kw_only=True)
class RandomCorpus:
    """Options of ``farspan corpus random``.

    Attributes:
        packing: capacity of a sequence, and rules for cutting documents.
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
class EarlierStages:
    """Options of the jobs that ``farspan corpus linked`` runs before linking.

    Attributes:
        stages: folder for their output (default: OUTPUT.stages).
        embedding: computation of vectors.
        clustering: division of vectors into clusters.
        search: search of neighbours in a cluster.
    """

    stages: Annotated[str | None, Flag(metavar="DIR")] = None
    embedding: Embedding = field(default_factory=Embedding)
    clustering: CentroidOptions = field(default_factory=CentroidOptions)
    search: SearchOptions = field(default_factory=SearchOptions)


@dataclass(frozen=True, kw_only=True)
class LinkedCorpus:
    """Options of ``farspan corpus linked``.

    Attributes:
        neighbours: folder made by ``farspan neighbours`` from the documents; computed if not given.
        packing: capacity of a sequence, and the concatenation of leftovers.
        linking: selection and order of the documents in a sequence.
        leftovers: concatenate in random order the documents that no linked sequence uses, or leave them out;
            near-duplicates of a used document are left out in either case.
        earlier: see farspan embed, cluster and neighbours.

    Examples:
        All stages in one command, kept in corpus.stages/ for the next corpus:
          farspan corpus linked --documents documents --sequence-length 16384 --output corpus
        Another policy from the same neighbours:
          farspan corpus linked --documents documents --neighbours corpus.stages/neighbours \\
            --policy path --sequence-length 16384 --output corpus-path
    """

    documents: DocumentsFolder
    output: Output
    packing: Annotated[Packing, _ROOM]
    linking: Linking = field(default_factory=Linking)
    leftovers: Literal["concatenate", "leave-out"] = "concatenate"
    seed: Seed = 0
    shards: Shards = 0
    compression: Compression = None
    fan_in: FanIn = FAN_IN
    neighbours: Annotated[str | None, Flag(metavar="DIR"), UNRECORDED] = None
    earlier: Annotated[EarlierStages, Flag(group="earlier stages"), UNRECORDED] = field(default_factory=EarlierStages)

    def __post_init__(self) -> None:
        _refuse_policy(self.packing, "linked")
        if self.neighbours is not None and (unused := list_changed(self.earlier, without=[*list_fields(LinkedCorpus)])):
            raise FarspanError(f"{unused[0]}: has no effect with --neighbours; give one of the two")

    @property
    def stages(self) -> str:
        """Folder of the output of the earlier stages."""
        return self.earlier.stages or self.output.rstrip("/") + ".stages"

    @property
    def neighbours_folder(self) -> str:
        """Folder of the neighbours to link, given or made by the earlier stages."""
        return self.neighbours or f"{self.stages}/neighbours"


@dataclass(frozen=True, kw_only=True)
class LongCorpus:
    """Options of ``farspan corpus long``.

    Attributes:
        recipe: mixture file: TOML with sources, weights, budget and sequence length.

    Examples:
        farspan corpus long examples/long_mixture.toml --output corpus  (the file explains every key)
    """

    recipe: Annotated[str, Flag(positional=True, metavar="MIXTURE.toml"), UNRECORDED]
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

    Examples:
        Clusters given in the input:
          farspan documents --input news='multi-news/*.jsonl' --format multi-news --tokenizer t5.model --output docs
          farspan corpus related --documents docs --sequence-length 4096 --output corpus
        Seeds with their nearest neighbours, from any documents:
          farspan corpus related --documents documents --neighbours corpus.stages/neighbours \\
            --max-documents 6 --sequence-length 4096 --output corpus
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

    def __post_init__(self) -> None:
        _refuse_policy(self.packing, "related")
