"""Chains of facts between the sentences of a text: "Mary has gold. Paul follows Mary." What does Paul have?

It is the variable tracking of RULER (Hsieh et al. 2024, section 3.2) in real text. A decoder of one layer can look up
one fact, because its cross-attention sees every position; all other hops are left to the encoder, which must bring the
facts of a chain together wherever they lie.

A model learns two hops of facts at random places only after a long plateau, because an attention head that copies from
anywhere gets no gradient before it knows from where. So in a share of the training documents the facts of each chain
lie side by side: copying from a fixed distance is learned first, and then made to follow the names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

THINGS = """
gold silver iron glass stone wood water fire fish horse bird dog bear ship book music
""".split()  # noqa: SIM905
NAMES = """
Mary Paul John James Charles George Henry William Robert David Peter Edward Martin Richard Thomas Karl Albert Francis
Joseph Daniel Michael Frank Louis Alexander Max Victoria Maria Philip Arthur Lewis Oscar Johann
""".split()  # noqa: SIM905
"""Words that are frequent in the text, so that a tokenizer trained on it has a token for each."""
OPENING = "Facts:"
"""Begins each text, so that every name follows a space: byte-level tokenizers then have one token for it everywhere."""

Places = Literal["together", "anywhere", "apart"]


@dataclass(frozen=True, kw_only=True)
class Chains:
    """Facts of a document of task ``chains``."""

    count: int = 3
    hops: int = 2  # facts of a chain, and so the maximum number of hops of a question
    names: int = 8  # number of different names in all documents
    # number of different things in all documents; chains may have the same one, so none is known from others
    things: int = 8
    together: float = 0.5  # share of the training documents with the facts of each chain side by side

    def __post_init__(self) -> None:
        if not 1 <= self.count * self.hops <= self.names <= len(NAMES):
            needed = self.count * self.hops
            raise ValueError(
                f"{self.count} chains of {self.hops} hops need {needed} names of {self.names}; there are {len(NAMES)}"
            )
        if not 1 <= self.things <= len(THINGS):
            raise ValueError(f"things is {self.things}; there are {len(THINGS)}")


@dataclass(frozen=True)
class Drawn:
    """The facts of one document."""

    names: list[list[str]]  # of each chain, the name with the thing first, then each follower
    things: list[str]  # of each chain

    def answer(self, asked: Sequence[tuple[int, int]]) -> str:
        """Names and their things, for some (chain, hop); begins with a space, as a name in the text does."""
        return ",".join(f" {self.names[chain][hop]} {self.things[chain]}" for chain, hop in asked)

    def question(self, asked: Sequence[tuple[int, int]]) -> str:
        """The question with that answer."""
        *some, last = [self.names[chain][hop] for chain, hop in asked]
        return f"What do {', '.join(some)} and {last} have?" if some else f"What does {last} have?"


def draw(facts: Chains, rng: np.random.Generator) -> Drawn:
    """Draw the names and things of a document."""
    names = rng.permutation(NAMES[: facts.names])[: facts.count * facts.hops]
    things = rng.choice(THINGS[: facts.things], facts.count)
    return Drawn(names.reshape(facts.count, facts.hops).tolist(), things.tolist())


def asked(facts: Chains, split: str, questions: int, rng: np.random.Generator) -> list[list[tuple[int, int]]]:
    """(Chain, hop) of each name in each question.

    A training question asks for as many names as there are chains, because each question costs a whole source; the
    others ask for one name. The names are drawn from all chains alike: a name of each chain would give the last
    answers away, which are what the others leave.
    """
    every = [(chain, hop) for chain in range(facts.count) for hop in range(facts.hops)]
    if split == "train":
        drawn = (rng.permutation(len(every))[: facts.count].tolist() for _ in range(questions))
        return [[every[place] for place in places] for places in drawn]
    return [[every[place]] for place in rng.permutation(len(every))[:questions].tolist()]


def with_facts(sentences: Sequence[str], drawn: Drawn, places: Places, rng: np.random.Generator) -> str:
    """The sentences with the facts between them, at random places.

    Places are "together" for the facts of each chain side by side; "anywhere"; or "apart" for a part of the text for
    each hop, in random order, so that the facts of a chain lie far from each other.
    """
    facts = [[_fact(drawn, chain, hop) for hop in range(len(drawn.names[0]))] for chain in range(len(drawn.names))]
    if places == "apart":
        order = rng.permutation(len(facts[0])).tolist()
        parts = [part.tolist() for part in np.array_split(np.array(sentences, object), len(order))]
        units = [[chain[hop] for chain in facts] for hop in order]
    else:
        parts, units = [list(sentences)], [[" ".join(chain) for chain in facts]]
        if places == "anywhere":
            units = [[fact for chain in facts for fact in chain]]
    text = [OPENING]
    for part, own in zip(parts, units, strict=True):
        ends = np.sort(rng.integers(0, len(part) + 1, len(own)))
        shuffled = rng.permutation(np.array(own, object))
        text += np.insert(np.array(part, object), ends, shuffled).tolist()
    return " ".join(text)


def _fact(drawn: Drawn, chain: int, hop: int) -> str:
    names = drawn.names[chain]
    return f"{names[hop]} follows {names[hop - 1]}." if hop else f"{names[0]} has {drawn.things[chain]}."
