"""``Example``: a question, its answers and the facts that a long text has to hold; and the text of exact length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from corpora.errors import FarspanError
from objectives.probes.materials import Draws, Materials, Text

WHOLE = 1 << 32
"""Places of facts are whole numbers from 0, the beginning of the text, to this, its end."""
DEPTHS = tuple(range(0, 101, 10))
"""Depths of facts in percent, unless others are asked for; others than these are rounded to them."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """An example, before its text is made.

    Attributes:
        query: the question, with the beginning of the answer after it.
        answers: parts of the answer, or, if they are ``alternatives``, answers of which one is enough.
        background: makes the text around the facts from the materials and a number of tokens.
        facts: sentences to put into the text, in the order of the text where their places are equal.
        places: place of each fact, or of each needed document in the background.
        needed: numbers of the facts that the answer needs; none if it needs the whole text.
        hops: facts that follow from each other on the way to an answer.
        cut: True if the background is longer than needed and may be cut after any token.
        split: split of a given pair.
    """

    query: str
    answers: Sequence[str]
    background: Callable[[Materials, int], Text]
    facts: Sequence[str] = ()
    places: Sequence[int] = ()
    needed: Sequence[int] = (0,)
    hops: int = 1
    cut: bool = True
    alternatives: bool = False
    split: str | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Texts to train on: all parts of the answer with commas between them, or each alternative."""
        return tuple(self.answers) if self.alternatives else (", ".join(self.answers),)

    @property
    def depth(self) -> int | None:
        """Depth of the first fact that the answer needs, in percent; None if it needs the whole text."""
        if not self.places:
            return None
        return (200 * min(self.places[number] for number in self.needed) + WHOLE) // (2 * WHOLE)

    def attributes(self, length: int, exact: bool) -> dict[str, Any]:
        """Attributes of the pair; the depth is rounded to tens unless it is ``exact``."""
        depth = self.depth
        found = {} if depth is None else {"depth": depth if exact else (depth + 5) // 10 * 10}
        return {"length": length, **found, "hops": self.hops}

    def text(self, materials: Materials, room: int) -> Text:
        """Make the text, of exactly ``room`` tokens if the background may be cut, else of at most as many.

        A fact stands before the sentence that begins nearest to its place.
        """
        facts = materials.encode(self.facts) if self.facts else None
        left = room - (int(facts.lengths.sum()) if facts else 0)
        if left < 1:
            raise FarspanError(f"{room - left:,} tokens of facts leave no room for a text; give larger --lengths")
        around = self.background(materials, left)
        if self.cut:
            around = Text(around.tokens[:left], around.starts[around.starts < left])
        if facts is None:
            return around
        edges = np.append(around.starts, len(around.tokens))  # places where a fact may stand
        wanted = np.array([place * len(around.tokens) // WHOLE for place in self.places])
        after = np.minimum(np.searchsorted(edges, wanted), len(edges) - 1)
        before = np.maximum(after - 1, 0)
        gaps = np.where(wanted - edges[before] < edges[after] - wanted, edges[before], edges[after])
        order = np.argsort(gaps, kind="stable")
        pieces = np.split(around.tokens, gaps[order])
        joined = [pieces[0]]
        for fact, piece in zip(order.tolist(), pieces[1:], strict=True):
            joined += [facts[fact].astype(np.int32), piece]
        added = np.concatenate([[0], np.cumsum(facts.lengths[order])])
        starts = around.starts + added[np.searchsorted(gaps[order], around.starts, side="right")]
        return Text(np.concatenate(joined), np.sort(np.concatenate([starts, gaps[order] + added[:-1]])))


@dataclass(frozen=True)
class Request:
    """The example that is asked for.

    Attributes:
        materials: what it is made of.
        key: key of all draws.
        name: its id.
        number: its number among the examples of one probe and length.
        length: positions of its source.
        place: place of the needed fact, for probes that need one.
    """

    materials: Materials
    key: bytes
    name: str
    number: int
    length: int
    place: int

    def draws(self, purpose: str) -> Draws:
        """Return the draws of this example for a purpose."""
        return Draws(self.key, f"{purpose}:{self.name}")


class Probe(NamedTuple):
    """A kind of example.

    Attributes:
        make: makes the example of a request.
        placed: True if one fact is needed, which stands at the place of the request.
        essay: True if its text is sentences of the documents.
    """

    make: Callable[[Request], Example]
    placed: bool = False
    essay: bool = True
