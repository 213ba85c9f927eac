"""Options of nearest-neighbour search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from corpora.options import UNRECORDED, Flag


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

    k: Annotated[int, Flag(least=1)] = 100
    exact_up_to: Annotated[int, Flag(least=0)] = 20_000
    probes: Annotated[int, Flag(least=1)] = 32
    seed: Annotated[int, UNRECORDED] = 0
