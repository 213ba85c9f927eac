"""Options of nearest-neighbour search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.errors import FarspanError
from corpora.options import UNRECORDED


@dataclass(frozen=True, kw_only=True)
class Search:
    """Options of the search for neighbours.

    Attributes:
        k: neighbours per document.
        exact_up_to: clusters of at most this many documents are searched exactly. Up to 20,000, a document takes no
            more time than with lists in a cluster of a million.
        probes: lists searched per document in larger clusters. In a cluster of 1.4 million, 16 lists find 92 % of the
            ten nearest; 32 find 95 % in 1.7 times the time.
        seed: seed of every random choice.
    """

    k: int = 100
    exact_up_to: int = 20_000
    probes: int = 32
    seed: Annotated[int, UNRECORDED] = 0

    def __post_init__(self) -> None:
        for name, least in (("k", 1), ("exact_up_to", 0), ("probes", 1)):
            if getattr(self, name) < least:
                flag = name.replace("_", "-")
                raise FarspanError(f"--{flag} {getattr(self, name)}: give a number of at least {least}")
