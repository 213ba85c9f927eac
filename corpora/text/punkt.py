"""Sentence starts equal to nupunkt's, ten times as fast: one compiled scan, and nupunkt itself for doubtful cases.

nupunkt 0.8 decides in three steps. A *mark* (``.?!…``) before white space or closing punctuation is a candidate; only
the last candidate of a word counts. Layout rules refuse some: the period of "1." at the start of a line, "!" before
another, a closing quote before a small letter. The others have a *context*, the word with the mark and the next word,
and Punkt's rules decide from it whether the sentence ends. Finally, closing punctuation goes to the sentence before it.

``punkt_kernels`` takes the same steps, but decides only those contexts on which all of Punkt's rules agree:

- "?" and "!" always end a sentence: each is a token of its own, and no rule revokes the break after it. The same
  holds for a period that begins its word or follows a bracket or a double quote.
- A period after a word of ASCII letters and digits ends a sentence, unless the word is an abbreviation or the first
  of a collocation of the model (or has an equal hash).
- A number or a single letter with a period is judged by the case of the next word, by an empty line between them and,
  for numbers, by the collocations.

Other contexts, one in twelve of Wikipedia's, are given to nupunkt's own decision function, which has a cache. A next
word of letters that the model does not know is replaced by a fixed word of the same case, so that most contexts are
found in the cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from corpora.storage.ragged import Ragged
from corpora.text import utf8
from corpora.text.punkt_kernels import scan
from corpora.text.punkt_rules_kernels import hash_words
from corpora.text.utf8 import byte_offsets, character_offsets

if TYPE_CHECKING:
    from nupunkt import PunktSentenceTokenizer

COMPARED = frozenset({"0.8.0"})
"""Versions of nupunkt that decide as the kernels do."""

_AT_ONCE = 1 << 20  # bytes of UTF-8 that are scanned together, unless a single text is longer
_PLAIN = 1 << 20  # characters that nupunkt splits in the time that loading compiled code takes
_NEXT_WORD = re.compile(rb"\s+([A-Za-z]+),?")
_CAPITAL, _SMALL = b"Xx", b"xx"  # replace next words of which Punkt's rules use nothing but the case
_NO_LIMIT = np.iinfo(np.int64).max


class Limits(NamedTuple):
    """Limits on marks, up to which text is split unchanged; see ``hide_stretches`` and ``thin_out_crowds``."""

    stretch: int  # maximum product of characters and marks in a stretch without white space
    crowd: int  # maximum number of marks in a crowd
    spacing: int  # average number of characters from one mark to the next, below which marks are a crowd


class CompiledPunkt:
    """The sentence starts of a model for which ``is_known`` is true; ``calm`` brings a text within the limits."""

    def __init__(self, model: PunktSentenceTokenizer, limits: Limits, calm: Callable[[str], str]) -> None:
        self._model, self._limits, self._calm = model, limits, calm
        self._seen = 0
        self._followers = _followers(model)
        self._tables: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def is_worth_loading(self, size: int) -> bool:
        """False as long as all calls together split so few characters that nupunkt ends before compiled code is loaded.

        ``size``: characters to be split now.
        """
        self._seen += size
        return self._seen > _PLAIN

    def starts(self, texts: Iterable[bytes]) -> Ragged:
        """Find the sentence starts of texts in UTF-8, as ``SentenceSplitter.byte_boundaries`` returns them."""
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
        """Find the sentence starts of a text that may be beyond the limits."""
        calm = self._calm(text.decode(errors="surrogatepass")).encode(errors="surrogatepass")
        starts = self._scan([calm], Limits(_NO_LIMIT, self._limits.crowd, 0))[0].values
        return starts if calm == text else byte_offsets(text, character_offsets(calm, starts))

    def _scan(self, texts: Sequence[bytes], limits: Limits) -> tuple[Ragged, np.ndarray]:
        """Find sentence starts; also return ``(texts,)`` bool, True if a text may be beyond the limits.

        The starts of such a text are invalid.
        """
        if self._tables is None:
            self._tables = (character_kinds(), *_words(self._model))
        data, edges = _join(texts)
        starts, lengths, doubts, beyond = scan(np.frombuffer(data, np.uint8), edges, *self._tables, *limits)
        refused = self._find_refused(data, doubts)
        if refused:
            rows = np.searchsorted(np.cumsum(lengths), refused, side="right")
            np.subtract.at(lengths, rows, 1)
            starts = np.delete(starts, refused)
        return Ragged.from_lengths(starts, lengths), beyond

    def _find_refused(self, data: bytes, doubts: np.ndarray) -> list[int]:
        """Find the indices of starts that nupunkt's rules revoke."""
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
    """Kinds of all code points, as ``str`` and ``re`` define them: ``(0x110000,)`` uint8, bits of ``utf8``."""
    codes = np.arange(0x40000, dtype=np.uint32).view("U1")  # higher ones are neither letters nor white space
    kinds = np.zeros(0x110000, np.uint8)
    letter = np.strings.isalpha(codes)
    decimal = np.strings.isdecimal(codes)
    letter |= (np.strings.isnumeric(codes) | np.strings.isdigit(codes)) & ~decimal  # [^\W\d_]
    known = kinds[: len(codes)]
    for bit, holds in (
        (utf8.SPACE, np.strings.isspace(codes)),
        (utf8.LETTER, letter),
        (utf8.LOWER, np.strings.islower(codes)),
        (utf8.DECIMAL, decimal),
    ):
        known |= np.where(holds, np.uint8(bit), np.uint8(0))
    for bit, characters in (
        (utf8.MARK, ".?!…"),
        (utf8.CLOSER, "\"')]}*”’»"),
        (utf8.BORDER, ')";}]*:@({[?!”»'),
        (utf8.APOSTROPHE, "'’"),
    ):
        known[[ord(character) for character in characters]] |= np.uint8(bit)
    return kinds


def _words(model: PunktSentenceTokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Hashes, ascending, of words before a period that are not decisive, and of words in collocations with a number."""
    collocations = model.parameters.collocations
    rare = model.parameters.abbrev_types | {first for first, _ in collocations}
    seconds = {re.match("[a-z]*", second) for first, second in collocations if first == "##number##"}
    return _hashes(rare), _hashes({match[0] for match in seconds if match})


def _followers(model: PunktSentenceTokenizer) -> frozenset[bytes]:
    """Next words, in lower case, that Punkt's rules know, beyond their case (``_second_pass_outcome``)."""
    parameters = model.parameters
    words = {*parameters.sent_starters, *(second for _, second in parameters.collocations), *model._ELLIPSIS_CONTINUERS}
    return frozenset(word.lower().encode() for word in words)


def _hashes(words: Iterable[str]) -> np.ndarray:
    data, edges = _join([word.encode() for word in words])
    return np.unique(hash_words(np.frombuffer(data, np.uint8), edges))


def _join(texts: Sequence[bytes]) -> tuple[bytes, np.ndarray]:
    """Join texts; also return ``(texts + 1,)`` int64, the position of each in the whole."""
    edges = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=edges[1:])
    return b"".join(texts), edges
