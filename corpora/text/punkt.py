"""Sentence starts equal to nupunkt's, ten times as fast: one compiled scan, and nupunkt itself where it has doubts.

nupunkt 0.8 decides in three steps. A *mark* (``.?!…``) before white space or closing punctuation is a candidate; of the
candidates in a word the last counts. Layout rules refuse some: the period of "1." at the start of a line, "!" before
another, a closing quote before a small letter. The others have a *context*, the word with the mark and the next word,
and Punkt's rules say whether a sentence ends in it. Finally, closing punctuation goes to the sentence before it.

``punkt_kernels`` takes the same steps, but decides contexts only where all of Punkt's rules agree:

- "?" and "!" always end a sentence: each is a token of its own, and no rule takes back the break after it. The same
  holds for a period that begins its word or follows a bracket or a double quote.
- A period after a word of ASCII letters and digits ends a sentence, unless the word is an abbreviation or the first
  of a collocation of the model (or has an equal hash).
- A number or a single letter with a period is judged by the case of the next word, by an empty line between them and,
  for numbers, by the collocations.

Other contexts, one in twelve of Wikipedia's, are given to nupunkt's own decision, which remembers the last ones. So
that most are found there, a next word of letters is replaced by another of the same case, unless the model knows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from corpora.storage.ragged import Ragged
from corpora.text import utf8_kernels as utf8
from corpora.text.offsets import byte_offsets, character_offsets
from corpora.text.punkt_kernels import scan
from corpora.text.punkt_rules_kernels import hash_words

if TYPE_CHECKING:
    from nupunkt import PunktSentenceTokenizer

COMPARED = frozenset({"0.8.0"})
"""Versions of nupunkt whose steps are those of the kernels."""

_AT_ONCE = 1 << 20  # bytes of UTF-8 that are scanned at once, or one text
_PLAIN = 1 << 20  # bytes of a process that nupunkt splits in the time in which compiled code is loaded
_NEXT_WORD = re.compile(rb"\s+([A-Za-z]+),?")
_CAPITAL, _SMALL = b"Xx", b"xx"  # stand for the next words of which Punkt's rules see the case alone
_NO_LIMIT = np.iinfo(np.int64).max


class Limits(NamedTuple):
    """Amounts of marks up to which text is given to a splitter as it is; see ``bounded`` and ``uncrowded``.

    Attributes:
        stretch: characters times marks of a stretch without white space.
        crowd: marks of a crowd.
        spacing: characters from one mark of a crowd to the next, on average.
    """

    stretch: int
    crowd: int
    spacing: int


class CompiledPunkt:
    """The sentence starts of nupunkt's default model.

    Args:
        model: as ``nupunkt.load_default_model`` returns it; one for which ``is_known`` is true.
        limits: beyond them, ``calm`` changes the text.
        calm: text -> text of as many characters that is within the limits.
    """

    def __init__(self, model: PunktSentenceTokenizer, limits: Limits, calm: Callable[[str], str]) -> None:
        self._model, self._limits, self._calm = model, limits, calm
        self._seen = 0
        self._followers = _followers(model)
        self._tables: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def is_worth_loading(self, size: int) -> bool:
        """False while the process has split so little text that nupunkt is done before compiled code is loaded.

        Args:
            size: characters to be split now.
        """
        self._seen += size
        return self._seen > _PLAIN

    def starts(self, texts: Iterable[bytes]) -> Ragged:
        """Sentence starts of texts in UTF-8, as ``SentenceSplitter.byte_boundaries`` gives them."""
        rows: list[Ragged] = []
        group: list[bytes] = []
        size = 0
        for text in texts:
            group.append(text)
            size += len(text)
            if size >= _AT_ONCE:
                rows.append(self._starts(group))
                group, size = [], 0
        last = self._starts(group)
        return Ragged.concatenate([*rows, last]) if rows else last

    def _starts(self, texts: Sequence[bytes]) -> Ragged:
        starts, beyond = self._scan(texts, self._limits)
        if not beyond.any():
            return starts
        rows = [starts[row] for row in range(len(starts))]
        for row in np.flatnonzero(beyond).tolist():
            rows[row] = self._calm_starts(texts[row])
        return Ragged.from_rows(rows, np.int64)

    def _calm_starts(self, text: bytes) -> np.ndarray:
        """Sentence starts of a text that may be beyond the limits."""
        calm = self._calm(text.decode(errors="surrogatepass")).encode(errors="surrogatepass")
        starts = self._scan([calm], Limits(_NO_LIMIT, self._limits.crowd, 0))[0].values
        return starts if calm == text else byte_offsets(text, character_offsets(calm, starts))

    def _scan(self, texts: Sequence[bytes], limits: Limits) -> tuple[Ragged, np.ndarray]:
        """Sentence starts, and ``(texts,)`` bool: the text may be beyond the limits, and its starts are void."""
        if self._tables is None:
            self._tables = (character_kinds(), *_words(self._model))
        data, edges = _joined(texts)
        starts, lengths, doubts, beyond = scan(np.frombuffer(data, np.uint8), edges, *self._tables, *limits)
        refused = self._refused(data, doubts)
        if refused:
            rows = np.searchsorted(np.cumsum(lengths), refused, side="right")
            np.subtract.at(lengths, rows, 1)
            starts = np.delete(starts, refused)
        return Ragged.from_lengths(starts, lengths), beyond

    def _refused(self, data: bytes, doubts: np.ndarray) -> list[int]:
        """Indices of the starts that nupunkt's rules take back."""
        decide = self._model._decision_state()[3]
        refused = []
        for index, begin, split, end in doubts.tolist():
            after = data[split:end]
            word = _NEXT_WORD.fullmatch(after)
            if word and word[1].lower() not in self._followers:
                after = (b"\n\n" if after.count(b"\n") > 1 else b" ") + (_CAPITAL if word[1][0] < 97 else _SMALL)
            if not decide((data[begin:split].decode(errors="surrogatepass"), after.decode(errors="surrogatepass"))):
                refused.append(index)
        return refused


def is_known(model: PunktSentenceTokenizer) -> bool:
    """True if ``CompiledPunkt`` decides as this model does."""
    import nupunkt

    parameters = model.parameters
    return (
        nupunkt.__version__ in COMPARED
        and type(model) is nupunkt.PunktSentenceTokenizer
        and not model.EXCL_QUEST_LOWERCASE_CONTINUES
        and not parameters.ortho_context
        and not any(first.startswith(".") for first, _ in parameters.collocations)
        and _SMALL not in _followers(model)
    )


def character_kinds() -> np.ndarray:
    """``(0x110000,)`` uint8: kind of each code point, the bits of ``utf8_kernels``, as ``str`` and ``re`` have it."""
    codes = np.arange(0x40000, dtype=np.uint32).view("U1")  # beyond them are neither letters nor white space
    kinds = np.zeros(0x110000, np.uint8)
    letter = np.strings.isalpha(codes)
    decimal = np.strings.isdecimal(codes)
    letter |= (np.strings.isnumeric(codes) | np.strings.isdigit(codes)) & ~decimal  # [^\W\d_]
    known = kinds[: len(codes)]
    for bit, has in (
        (utf8.SPACE, np.strings.isspace(codes)),
        (utf8.LETTER, letter),
        (utf8.LOWER, np.strings.islower(codes)),
        (utf8.DECIMAL, decimal),
    ):
        known |= np.where(has, np.uint8(bit), np.uint8(0))
    for bit, characters in (
        (utf8.MARK, ".?!…"),
        (utf8.CLOSER, "\"')]}*”’»"),
        (utf8.BORDER, ')";}]*:@({[?!”»'),
        (utf8.APOSTROPHE, "'’"),
    ):
        known[[ord(character) for character in characters]] |= np.uint8(bit)
    return kinds


def _words(model: PunktSentenceTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Ascending hashes of the words before a period that decide nothing alone, and of those after a number."""
    collocations = model.parameters.collocations
    rare = model.parameters.abbrev_types | {first for first, _ in collocations}
    seconds = {re.match("[a-z]*", second) for first, second in collocations if first == "##number##"}
    return _hashes(rare), _hashes({found[0] for found in seconds if found})


def _followers(model: PunktSentenceTokenizer) -> frozenset[bytes]:
    """Words, in lower case, of which Punkt's rules see more than their case ("_second_pass_outcome")."""
    parameters = model.parameters
    words = {*parameters.sent_starters, *(second for _, second in parameters.collocations), *model._ELLIPSIS_CONTINUERS}
    return frozenset(word.lower().encode() for word in words)


def _hashes(words: Iterable[str]) -> np.ndarray:
    data, edges = _joined([word.encode() for word in words])
    return np.unique(hash_words(np.frombuffer(data, np.uint8), edges))


def _joined(texts: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    """All texts, and where each begins and ends."""
    edges = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=edges[1:])
    return b"".join(texts), edges
