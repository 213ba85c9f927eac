"""Sentence splitters, and the sentence starts of texts as characters, bytes and tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from corpora.compiled import compiled
from corpora.errors import FarspanError, from_extra
from corpora.storage.ragged import Ragged
from corpora.text.punkt import CompiledPunkt, Limits, is_known
from corpora.text.utf8 import byte_offsets, character_offsets

Result = TypeVar("Result")


@dataclass(frozen=True)
class SentenceSplitter:
    """A sentence splitter with the name and version that manifests record.

    ``spans`` maps a text to the (start, stop) characters of its sentences, ascending, with or without white space.
    """

    name: str  # for ``load_splitter``
    version: str  # of the library, of the rule for adversarial text, and of the model, if any
    spans: Callable[[str], Iterable[tuple[int, int]]]
    compiled: CompiledPunkt | None = None  # faster code with equal boundaries, if there is any

    def boundaries(self, text: str) -> np.ndarray:
        """Return the sentence starts: 0, then the end of each sentence but the last, without trailing white space.

        The space between two sentences belongs to the second, because tokens have leading spaces.

        Returns ``(sentences,)`` int64 character offsets, strictly ascending, less than ``len(text)``; none for "".
        """
        if not text:
            return np.empty(0, np.int64)
        if self.compiled and self.compiled.is_worth_loading(len(text)):
            data = text.encode(errors="surrogatepass")
            return character_offsets(data, self.compiled.starts([data]).values)
        ends = [0]
        for start, stop in self.spans(text):
            length = len(text[start:stop].rstrip())
            if length:
                ends.append(start + length)
        return np.array(ends[:-1] or ends, np.int64)

    def byte_boundaries(self, texts: Sequence[str]) -> Ragged:
        """Return the ``boundaries`` of each text as positions in its UTF-8, one row of int64 per text.

        The texts have no lone surrogates.
        """
        if self.compiled and self.compiled.is_worth_loading(sum(map(len, texts))):
            return self.compiled.starts(text.encode() for text in texts)
        return Ragged.from_rows([byte_offsets(text, self.boundaries(text)) for text in texts], np.int64)


# The libraries scan from each sentence mark to the next white space. A stretch without white space therefore costs its
# length times its marks, which the limits below bound. In other text the cost grows with the number of marks, which is
# one in 30 to 100 characters of prose; only much denser text, such as 300,000 times ". ", is slow.
_RULE = "+bounded.2"
_SENTENCE_ENDS = re.compile(r"[.?!…]")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_KEPT = 16  # characters at the end of a stretch, from which a library decides whether a sentence ends there
_CROWD = 4096  # number of consecutive marks that are a crowd if they are _SPACING characters apart on average, or less
_SPACING = 6
_PUNKT_LIMIT = 1 << 14


def hide_stretches(spans: Callable[[str], Result], marks: re.Pattern[str], limit: int) -> Callable[[str], Result]:
    """Make ``spans`` linear in time by hiding long stretches without white space that have too many marks.

    A stretch has too many if its length times its marks exceeds ``limit``. The library then sees white space between
    two letters and the last characters of the stretch, so a sentence may end with the stretch but not inside it. Other
    text is not changed.
    """
    stretch = re.compile(rf"(?<!\S)\S{{{math.isqrt(limit)},}}+")

    def calm(match: re.Match[str]) -> str:
        text = match[0]
        if len(text) * len(marks.findall(text)) <= limit:
            return text
        return "x" + " " * (len(text) - _KEPT - 2) + "x" + text[-_KEPT:]

    return lambda text: spans(stretch.sub(calm, text))


def thin_out_crowds(spans: Callable[[str], Result]) -> Callable[[str], Result]:
    """Make ``spans`` linear in time by replacing the marks of a crowd by letters, except in its last word.

    A crowd is a passage with one of ``.?!…`` per ``_SPACING`` characters on average, measured over ``_CROWD``
    consecutive marks and over 16. Prose is never so dense over 24,000 characters. A sentence may end with a crowd but
    not inside it.
    """

    def calm(text: str) -> str:
        places = np.array([mark.start() for mark in _SENTENCE_ENDS.finditer(text)], np.int64)
        crowded = _dense(places, _CROWD)
        if not crowded.any():
            return text
        characters = list(text)
        crowded &= _dense(places, 16)
        for begin, end in np.flatnonzero(np.diff(crowded, prepend=False, append=False)).reshape(-1, 2):
            last = places[end - 1]
            while last and not text[last - 1].isspace():
                last -= 1
            for place in places[begin : np.searchsorted(places, last)]:
                characters[place] = "x"
        return "".join(characters)

    return lambda text: spans(calm(text))


def _dense(places: np.ndarray, count: int) -> np.ndarray:
    """Find the places in a run of ``count + 1`` that are at most ``_SPACING`` apart on average; ``(places,)`` bool."""
    dense = places[count:] - places[:-count] <= _SPACING * count
    steps = np.zeros(len(places) + 1, np.int64)
    steps[: len(dense)] += dense
    steps[count + 1 : count + 1 + len(dense)] -= dense
    return np.cumsum(steps[:-1]) > 0


def _punkt(spans: Callable[[str], Result]) -> Callable[[str], Result]:
    """Make the ``spans`` of a Punkt splitter linear in time, by ``hide_stretches`` and ``thin_out_crowds``."""
    return hide_stretches(thin_out_crowds(spans), _SENTENCE_ENDS, _PUNKT_LIMIT)


def load_splitter(name: str = "nupunkt") -> SentenceSplitter:
    """Load a splitter by name.

    - ``nupunkt``: Punkt with a model included in its distribution; the default, for its speed and agreement. Compiled
      code finds the boundaries if the version of nupunkt is one of ``corpora.text.punkt.COMPARED``.
    - ``nltk``: Punkt without a trained model, hence without abbreviations, because NLTK includes no data.
      ``nltk:english`` (or another language) is the trained one; it needs NLTK's ``punkt_tab`` data.
    - ``spacy``: the rule-based sentencizer; ``spacy:en_core_web_sm`` (or another installed model) uses that model.

    nupunkt and NLTK are for languages with white space between sentences; spaCy also supports the full stops of other
    scripts.
    """
    library, _, model = name.partition(":")
    match library:
        case "nupunkt" if not model:
            return _nupunkt()
        case "nltk":
            return _nltk(model)
        case "spacy":
            return _spacy(model)
    raise FarspanError(
        f"sentence splitter {name!r} is unknown; choose nupunkt, nltk, nltk:LANGUAGE, spacy or spacy:MODEL"
    )


def _nupunkt() -> SentenceSplitter:
    import nupunkt

    model = nupunkt.load_default_model()
    compiled = CompiledPunkt(model, Limits(_PUNKT_LIMIT, _CROWD, _SPACING), _punkt(str)) if is_known(model) else None
    return SentenceSplitter("nupunkt", nupunkt.__version__ + _RULE, _punkt(model.span_tokenize), compiled)


def _nltk(language: str) -> SentenceSplitter:
    import nltk
    from nltk import redos
    from nltk.tokenize import punkt

    redos.DEFAULT_TIMEOUT = None  # with one, long text fails on a slow machine; ``hide_stretches`` limits the time
    if not language:
        spans = _punkt(punkt.PunktSentenceTokenizer().span_tokenize)
        return SentenceSplitter("nltk", nltk.__version__ + _RULE, spans)
    try:
        tokenizer = punkt.PunktTokenizer(language)
    except LookupError:
        raise FarspanError(
            f"sentence splitter nltk:{language}: NLTK's punkt_tab data for it is not installed; "
            "run `python -m nltk.downloader punkt_tab`, or choose nupunkt"
        ) from None
    spans = _punkt(tokenizer.span_tokenize)
    return SentenceSplitter(f"nltk:{language}", nltk.__version__ + _RULE, spans)


def _spacy(model: str) -> SentenceSplitter:
    with from_extra("spacy", "sentence splitter spacy"):
        import spacy

    if model:
        try:
            pipeline = spacy.load(model, exclude=["ner", "lemmatizer", "attribute_ruler", "tagger"])
        except OSError as error:
            raise FarspanError(
                f"sentence splitter spacy:{model}: spaCy cannot load the model ({error}); install it first"
            ) from error
        version = f"{spacy.__version__}{_RULE} {model} {pipeline.meta['version']}"
    else:
        pipeline = spacy.blank("en")
        pipeline.add_pipe("sentencizer")
        version = spacy.__version__ + _RULE
    pipeline.max_length = 2**31  # spaCy's limit protects the memory of parsers; readers limit the size of records

    def spans(text: str) -> Iterable[tuple[int, int]]:
        return ((sentence.start_char, sentence.end_char) for sentence in pipeline(text).sents)

    # spaCy's tokenizer removes one mark at a time from both ends of a stretch, hence the smaller limit
    return SentenceSplitter(
        f"spacy:{model}" if model else "spacy", version, hide_stretches(spans, _PUNCTUATION, 1 << 10)
    )


def sentence_token_starts(token_starts: Ragged, boundaries: Ragged) -> Ragged:
    """Find the first token of each sentence; a token across a boundary belongs to the earlier sentence.

    ``token_starts``: rows of int64, one row per text: first byte of each token, ascending. ``boundaries``: rows of
    int64, one row per text: first byte of each sentence, ascending (``byte_offsets`` of a splitter's boundaries).
    Returns rows of int32, strictly ascending; the first is 0 if there are tokens. Sentences in which no token starts
    are left out.
    """
    starts, lengths = _token_starts(token_starts.values, token_starts.offsets, boundaries.values, boundaries.offsets)
    return Ragged.from_lengths(starts, lengths)


@compiled(small=True)
def _token_starts(
    starts: np.ndarray, offsets: np.ndarray, boundaries: np.ndarray, boundary_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return token indices within each text, ``(sentences,)`` int32, and sentences per text, ``(texts,)`` int64."""
    result = np.empty(len(offsets) - 1 + len(boundaries), np.int32)
    lengths = np.zeros(len(offsets) - 1, np.int64)
    count = 0
    for text in range(len(lengths)):
        first, end, token = count, offsets[text + 1], offsets[text]
        if token == end:
            continue
        result[count] = 0
        count += 1
        for i in range(boundary_offsets[text], boundary_offsets[text + 1]):
            while token < end and starts[token] < boundaries[i]:
                token += 1
            if token < end and token - offsets[text] > result[count - 1]:
                result[count] = token - offsets[text]
                count += 1
        lengths[text] = count - first
    return result[:count], lengths
