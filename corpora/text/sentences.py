"""Where sentences begin, in text and then in tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numba
import numpy as np

from corpora.errors import FarspanError, from_extra
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class SentenceSplitter:
    """Attributes:
    name: as ``load_splitter`` knows it.
    version: of the library, of the rule for adversarial text, and of the model, if any; manifests record both.
    spans: text -> (start, stop) characters of each sentence, ascending; white space may be in or out.
    """

    name: str
    version: str
    spans: Callable[[str], Iterable[tuple[int, int]]]

    def boundaries(self, text: str) -> np.ndarray:
        """Where sentences begin: 0, then the end of each sentence but the last, without its trailing white space.

        So the space between two sentences goes with the second, as in tokens that carry a leading space.

        Returns:
            ``(sentences,)`` int64 character offsets, strictly ascending, less than ``len(text)``; none for "".
        """
        if not text:
            return np.empty(0, np.int64)
        ends = [0]
        for start, stop in self.spans(text):
            length = len(text[start:stop].rstrip())
            if length:
                ends.append(start + length)
        return np.array(ends[:-1] or ends, np.int64)


# The libraries look from each mark to the end of the text without white space that it stands in, so that their work
# grows with the square of such a stretch: its length times its marks is what a limit bounds. Elsewhere it grows with
# the marks, of which prose has one in 30 to 100 characters; only denser text, such as 300,000 times ". ", is slow.
_RULE = "+bounded.2"
_SENTENCE_ENDS = re.compile(r"[.?!…]")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_KEPT = 16  # characters at the end of a stretch, by which a library decides whether a sentence ends there
_CROWD = 4096  # marks, of which each is followed by the next after _SPACING characters on average
_SPACING = 6


def bounded(
    spans: Callable[[str], Iterable[tuple[int, int]]], marks: re.Pattern[str], limit: int
) -> Callable[[str], Iterable[tuple[int, int]]]:
    """``spans`` in linear time: long stretches without white space that have too many marks are hidden from it.

    A stretch has too many when its length times its marks exceeds ``limit``; the library sees white space between two
    letters, and its last characters. So sentences may end with the stretch, and not inside it. Other text reaches it
    as it is.
    """
    stretch = re.compile(rf"(?<!\S)\S{{{math.isqrt(limit)},}}+")

    def calm(found: re.Match[str]) -> str:
        text = found[0]
        if len(text) * len(marks.findall(text)) <= limit:
            return text
        return "x" + " " * (len(text) - _KEPT - 2) + "x" + text[-_KEPT:]

    return lambda text: spans(stretch.sub(calm, text))


def uncrowded(spans: Callable[[str], Iterable[tuple[int, int]]]) -> Callable[[str], Iterable[tuple[int, int]]]:
    """``spans`` of text in which a letter stands for each mark of a crowd, but for those in its last word.

    A crowd is a passage with one of ``.?!…`` in every ``_SPACING`` characters on average, measured over ``_CROWD`` of
    them in succession and over 16. No prose is as dense over 24,000 characters. Sentences may end with a
    crowd, and not inside it.
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
    """Tells of each place, (places,) bool, whether it is among ``count + 1`` that lie ``_SPACING`` apart or closer."""
    dense = places[count:] - places[:-count] <= _SPACING * count
    steps = np.zeros(len(places) + 1, np.int64)
    steps[: len(dense)] += dense
    steps[count + 1 : count + 1 + len(dense)] -= dense
    return np.cumsum(steps[:-1]) > 0


def _punkt(spans: Callable[[str], Iterable[tuple[int, int]]]) -> Callable[[str], Iterable[tuple[int, int]]]:
    """A Punkt splitter's ``spans`` with both bounds."""
    return bounded(uncrowded(spans), _SENTENCE_ENDS, 1 << 14)


def load_splitter(name: str = "nupunkt") -> SentenceSplitter:
    """Load a splitter by name.

    - ``nupunkt``: Punkt with the model that its distribution brings; the default, for its speed and agreement.
    - ``nltk``: Punkt untrained, which knows no abbreviations, since NLTK brings no data; ``nltk:english`` (or another
      language) is the trained one, where NLTK's ``punkt_tab`` data is installed.
    - ``spacy``: the rule-based sentencizer; ``spacy:en_core_web_sm`` (or another installed model) is that model's.

    All are for languages that put white space between sentences, but for spaCy's, which also know the full stops of
    other scripts.

    Raises:
        FarspanError: an unknown name, or a model that is not installed.
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

    spans = _punkt(nupunkt.load_default_model().span_tokenize)
    return SentenceSplitter("nupunkt", nupunkt.__version__ + _RULE, spans)


def _nltk(language: str) -> SentenceSplitter:
    import nltk
    from nltk import redos
    from nltk.tokenize import punkt

    redos.DEFAULT_TIMEOUT = None  # seconds of a clock, after which long text fails on a slow machine; ours are bounded
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
    pipeline.max_length = 2**31  # spaCy's limit guards the memory of parsers; ours is the reader's record size

    def spans(text: str) -> Iterable[tuple[int, int]]:
        return ((sentence.start_char, sentence.end_char) for sentence in pipeline(text).sents)

    # its tokenizer takes mark after mark from both ends of a stretch, hence the smaller limit
    return SentenceSplitter(f"spacy:{model}" if model else "spacy", version, bounded(spans, _PUNCTUATION, 1 << 10))


def sentence_token_starts(token_starts: Ragged, boundaries: Ragged) -> Ragged:
    """The tokens with which sentences begin; a token across a boundary belongs to the earlier sentence.

    Args:
        token_starts: rows of int64, one row a text: the byte at which each token begins, ascending.
        boundaries: rows of int64, as many: the bytes at which sentences begin, ascending
            (``text_offsets.byte_offsets`` of a splitter's boundaries).

    Returns:
        Rows of int32, strictly ascending; 0 first where there are tokens. A sentence in which no token begins is none.
    """
    starts, lengths = _token_starts(token_starts.values, token_starts.offsets, boundaries.values, boundaries.offsets)
    return Ragged.from_lengths(starts, lengths)


@numba.njit(cache=True)
def _token_starts(
    starts: np.ndarray, offsets: np.ndarray, boundaries: np.ndarray, boundary_offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Token numbers inside their texts, (sentences,) int32, and how many each text has, (texts,) int64."""
    found = np.empty(len(offsets) - 1 + len(boundaries), np.int32)
    lengths = np.zeros(len(offsets) - 1, np.int64)
    count = 0
    for text in range(len(lengths)):
        first, end, token = count, offsets[text + 1], offsets[text]
        if token == end:
            continue
        found[count] = 0
        count += 1
        for i in range(boundary_offsets[text], boundary_offsets[text + 1]):
            while token < end and starts[token] < boundaries[i]:
                token += 1
            if token < end and token - offsets[text] > found[count - 1]:
                found[count] = token - offsets[text]
                count += 1
        lengths[text] = count - first
    return found[:count], lengths
