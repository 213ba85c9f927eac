"""Examples of probes and what they are made of: keyed draws, words and sentences of documents, and given pairs.

``Example`` has a question, its answers and the facts that a long text has to hold, and makes a text of exact length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer
from objectives.tasks.texts import encode_after_space, encode_inserted

WHOLE = 1 << 32
"""Places of facts are whole numbers from 0, the beginning of the text, to this, its end."""
DEPTHS = tuple(range(0, 101, 10))
"""Depths of facts in percent, unless others are asked for; others than these are rounded to them."""
Item = TypeVar("Item")
_32 = np.uint64(32)
_PUNCTUATION = ".,;:!?\"'()[]"


class Draws:
    """Draws of one example: a generator keyed by its id, so that no other example shifts them."""

    def __init__(self, key: bytes, name: str) -> None:
        self._bits = np.random.Philox(key=id_keys(key, [name])[0])

    def below(self, bound: int, count: int) -> np.ndarray:
        """Draw whole numbers from 0 to ``bound - 1`` (at most 2**32), ``(count,)`` int64."""
        return ((self._bits.random_raw(count) >> _32) * np.uint64(bound) >> _32).astype(np.int64)

    def distinct(self, bound: int, count: int) -> np.ndarray:
        """Draw ``count`` distinct whole numbers below ``bound``, in random order, int64."""
        if bound <= 4 * count:
            return np.argsort(self._bits.random_raw(bound), kind="stable")[:count]
        numbers = np.empty(0, np.int64)
        while len(numbers) < count:
            numbers = np.concatenate([numbers, self.below(bound, count)])
            numbers = numbers[np.sort(np.unique(numbers, return_index=True)[1])]
        return numbers[:count]

    def pick(self, items: Sequence[Item], count: int) -> list[Item]:
        """Draw ``count`` different items, in random order."""
        return [items[number] for number in self.distinct(len(items), count).tolist()]

    def one(self, items: Sequence[Item]) -> Item:
        """Draw an item."""
        return items[int(self.below(len(items), 1)[0])]

    def hexadecimal(self, count: int) -> list[str]:
        """Draw codes of 32 hexadecimal digits, grouped as in a UUID."""
        digits = self._bits.random_raw(2 * count).astype("<u8").tobytes().hex()
        codes = (digits[start : start + 32] for start in range(0, len(digits), 32))
        return ["-".join((code[:8], code[8:12], code[12:16], code[16:20], code[20:])) for code in codes]


class Text(NamedTuple):
    """Tokens ``(n,)`` int32, and the first token of each sentence, ascending int64."""

    tokens: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, units: Ragged) -> Text:
        """Join units to a text in which each is a sentence."""
        units = units.compact()
        return cls(units.values.astype(np.int32), units.offsets[:-1])


@dataclass(frozen=True, eq=False)
class Materials:
    """Everything that probes are made of: documents, and for the tasks ``qa_1`` and ``qa_2`` given pairs about them."""

    tokenizer: Tokenizer
    words: Sequence[str]  # distinct words of the documents, sorted
    documents: DocumentSet
    questions: PairSet | None = None

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Encode texts as they are spelled inside a text, int32."""
        return encode_after_space(self.tokenizer, texts)

    @cached_property
    def line_end(self) -> np.ndarray:
        """Tokens of a line end, which separates documents; none if the tokenizer drops it."""
        return np.array(encode_inserted(self.tokenizer, "\n"), np.int32)

    def pick_words(self, draws: Draws, count: int) -> list[str]:
        """Draw different words of the documents."""
        self._check(count, len(self.words))
        return draws.pick(self.words, count)

    def keys(self, draws: Draws, count: int) -> list[str]:
        """Draw different keys, two words with a hyphen each."""
        size = len(self.words)
        self._check(count, size * size)
        return [f"{self.words[n // size]}-{self.words[n % size]}" for n in draws.distinct(size * size, count).tolist()]

    def _check(self, count: int, available: int) -> None:
        if count > available:
            raise FarspanError(
                f"{self.documents.folder}: {len(self.words):,} different words are too few for {count:,} words or "
                "pairs of words in an example; give more documents, or smaller --lengths"
            )

    def document(self, row: int) -> Text:
        """Read a document."""
        table = self.documents.take([row]).combine_chunks()
        tokens, starts = (
            Ragged.from_arrow(table.column(name).chunk(0)).compact() for name in ("tokens", "sentence_starts")
        )
        return Text(tokens.values.astype(np.int32), starts.values.astype(np.int64))

    def essay(self, draws: Draws, room: int) -> Text:
        """Consecutive sentences of at least ``room`` tokens, from a drawn sentence of a drawn document on."""
        row, part = int(draws.below(len(self.documents), 1)[0]), int(draws.below(1 << 32, 1)[0])
        tokens: list[np.ndarray] = []
        starts: list[np.ndarray] = []
        size = 0
        while size < room:
            text = self.document(row)
            first = 0 if tokens or not len(text.starts) else int(text.starts[(part * len(text.starts)) >> 32])
            lead = self.line_end if tokens else self.line_end[:0]
            starts.append(np.append(size, text.starts[text.starts > first] - first + size + len(lead)))
            tokens += [lead, text.tokens[first:]]
            size += len(lead) + len(text.tokens) - first
            row = (row + 1) % len(self.documents)
        return Text(np.concatenate(tokens), np.concatenate(starts))


def encode_numbers(materials: Materials, form: str, count: int) -> Ragged:
    """Encode ``form`` with the numbers 1, 2 and so on, ``count`` or more of them."""
    return _encode_numbers(materials, form, 1 << count.bit_length())


@lru_cache(maxsize=4)
def _encode_numbers(materials: Materials, form: str, count: int) -> Ragged:
    return materials.encode([form.format(number) for number in range(1, count + 1)])


def list_words(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """List the distinct words of 3 to 12 lower-case letters in texts that survive encoding, sorted."""
    words = {word.strip(_PUNCTUATION) for text in texts for word in text.split()}
    plain = sorted(word for word in words if 3 <= len(word) <= 12 and word.isalpha() and word == word.lower())
    tokens = tokenizer.encode(plain)
    return [word for number, word in enumerate(plain) if tokenizer.decode(tokens[number]).strip() == word]


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
    """The example that is asked for."""

    materials: Materials
    key: bytes  # of all draws
    name: str  # its id
    number: int  # among the examples of one probe and length
    length: int  # positions of its source
    place: int  # of the needed fact, for probes that need one

    def draws(self, purpose: str) -> Draws:
        """Return the draws of this example for a purpose."""
        return Draws(self.key, f"{purpose}:{self.name}")


class Probe(NamedTuple):
    """A kind of example."""

    make: Callable[[Request], Example]
    placed: bool = False  # True if one fact is needed, which stands at the place of the request
    essay: bool = True  # True if its text is sentences of the documents
