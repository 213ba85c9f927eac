"""Options shared by several jobs, each with its type, flag and help."""

from __future__ import annotations

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
