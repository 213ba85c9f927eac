"""What probes are made of: keyed draws, the words and sentences of documents, and given pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.schemas.documents import DocumentSet
from corpora.schemas.pairs import PairSet
from corpora.storage.ragged import Ragged
from corpora.tokenizers.protocol import Tokenizer
from objectives.tasks.texts import encode_after_space, encode_inserted

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
    """Everything that probes are made of.

    Attributes:
        tokenizer: tokenizer of the documents.
        words: distinct words of the documents, sorted.
        documents: documents whose sentences are the haystack.
        questions: given pairs about these documents, for the tasks ``qa_1`` and ``qa_2``; None without them.
    """

    tokenizer: Tokenizer
    words: Sequence[str]
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


@lru_cache(maxsize=4)
def _numbered(materials: Materials, form: str, count: int) -> Ragged:
    return materials.encode([form.format(number) for number in range(1, count + 1)])


def numbered(materials: Materials, form: str, count: int) -> Ragged:
    """Encode ``form`` with the numbers 1, 2 and so on, ``count`` or more of them."""
    return _numbered(materials, form, 1 << count.bit_length())


def list_words(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """List the distinct words of 3 to 12 lower-case letters in texts that survive encoding, sorted."""
    words = {word.strip(_PUNCTUATION) for text in texts for word in text.split()}
    plain = sorted(word for word in words if 3 <= len(word) <= 12 and word.isalpha() and word == word.lower())
    tokens = tokenizer.encode(plain)
    return [word for number, word in enumerate(plain) if tokenizer.decode(tokens[number]).strip() == word]
