"""Where sentences begin, in text and then in tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from corpora.errors import FarspanError


@dataclass(frozen=True)
class SentenceSplitter:
    """Attributes:
    name: as ``load_splitter`` knows it.
    version: of the library, and of the model where one is used; manifests record both.
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

    return SentenceSplitter("nupunkt", nupunkt.__version__, nupunkt.load_default_model().span_tokenize)


def _nltk(language: str) -> SentenceSplitter:
    import nltk
    from nltk.tokenize import punkt

    if not language:
        return SentenceSplitter("nltk", nltk.__version__, punkt.PunktSentenceTokenizer().span_tokenize)
    try:
        tokenizer = punkt.PunktTokenizer(language)
    except LookupError:
        raise FarspanError(
            f"sentence splitter nltk:{language}: NLTK's punkt_tab data for it is not installed; "
            "run `python -m nltk.downloader punkt_tab`, or choose nupunkt"
        ) from None
    return SentenceSplitter(f"nltk:{language}", nltk.__version__, tokenizer.span_tokenize)


def _spacy(model: str) -> SentenceSplitter:
    import spacy

    if model:
        try:
            pipeline = spacy.load(model, exclude=["ner", "lemmatizer", "attribute_ruler", "tagger"])
        except OSError as error:
            raise FarspanError(
                f"sentence splitter spacy:{model}: spaCy cannot load the model ({error}); install it first"
            ) from error
        version = f"{spacy.__version__} {model} {pipeline.meta['version']}"
    else:
        pipeline = spacy.blank("en")
        pipeline.add_pipe("sentencizer")
        version = spacy.__version__
    pipeline.max_length = 2**31  # spaCy's limit guards the memory of parsers; ours is the reader's record size

    def spans(text: str) -> Iterable[tuple[int, int]]:
        return ((sentence.start_char, sentence.end_char) for sentence in pipeline(text).sents)

    return SentenceSplitter(f"spacy:{model}" if model else "spacy", version, spans)


def sentence_token_starts(token_starts: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
    """The tokens with which sentences begin; a token across a boundary belongs to the earlier sentence.

    Args:
        token_starts: ``(n,)`` int64, the byte at which each token begins, ascending.
        boundaries: ``(k,)`` int64, the bytes at which sentences begin, ascending
            (``text_offsets.byte_offsets`` of a splitter's boundaries).

    Returns:
        ``(sentences,)`` int32, strictly ascending; 0 first where there are tokens. A sentence in which no token begins
        is none.
    """
    if len(token_starts) == 0:
        return np.empty(0, np.int32)
    first = np.searchsorted(token_starts, boundaries)  # (k,)
    return np.unique(np.append(0, first[first < len(token_starts)])).astype(np.int32)
