"""Options shared by several jobs, each with its type, flag and help, and those of ``farspan push``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from corpora.options import NO_FLAG, UNRECORDED, Flag

SplitName = Literal["train", "held-out"]

Folder = Annotated[str, Flag(metavar="DIR"), UNRECORDED]
Output = Annotated[str, Flag(metavar="DIR", help="folder to create; an unfinished job in it is resumed"), UNRECORDED]
DocumentsFolder = Annotated[str, Flag(metavar="DIR", help="folder made by `farspan documents`"), UNRECORDED]
Split = Annotated[SplitName, Flag(help="documents to use")]
Seed = Annotated[int, Flag(help="seed of every random choice"), UNRECORDED]
Shards = Annotated[int, Flag(help="number of shards; 0 for one per 16 million tokens", least=0)]
Threads = Annotated[
    int,
    Flag(help="threads per worker; part of the configuration, because they change floating-point rounding", least=1),
]
Compression = Annotated[
    Literal["lz4", "zstd"] | None, Flag(help="compression of shards (default: none, for memory mapping)")
]
ErrorBudget = Annotated[
    float,
    Flag(
        help="tolerated share of bad records, of damaged files and of lost bytes; each is counted separately",
        least=0,
        most=1,
    ),
    UNRECORDED,
]
FanIn = Annotated[int, NO_FLAG, UNRECORDED]

FAN_IN = 64  # maximum number of spill files read per bucket before merging; does not affect the output


@dataclass(frozen=True, kw_only=True)
class Push:
    """Options of ``farspan push``.

    Attributes:
        artefact: folder of a finished artefact, or of a model that ``farspan convert --to huggingface`` wrote.
        target: hf://datasets/OWNER/NAME for an artefact, hf://OWNER/NAME for a model; @BRANCH and /FOLDER may follow.
        private: create the repository as private; an existing one is not changed.
        message: title of the commits (default: the name of the folder).

    Examples:
        farspan push my/corpus hf://datasets/OWNER/long-corpus
        farspan push my/masks hf://datasets/OWNER/long-corpus/masks --private
        farspan push my/exported hf://OWNER/my-model
    """

    artefact: Annotated[str, Flag(positional=True)]
    target: Annotated[str, Flag(positional=True)]
    private: bool = False
    message: str | None = None
