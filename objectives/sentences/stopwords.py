"""Lists of stopwords, by name."""

from __future__ import annotations

import runpy
from functools import lru_cache
from importlib.metadata import Distribution, distribution

from corpora.errors import from_extra


@lru_cache(maxsize=1)
def english_stopwords() -> frozenset[str]:
    """Return spaCy's list of 326 English stopwords.

    PEGASUS uses NLTK's list of 2015, with 127 words. After splitting both like text, spaCy's lacks don, having and
    theirs, and has 188 more, such as also, however, one. In Wikipedia, 84 to 97 % of the sentences that presets choose
    are the same with both (docs/objectives.md). PEGASUS's list can be given as option ``stopwords``.
    """
    # Only this file is loaded, because importing its package imports torch.
    path = _spacy().locate_file("spacy/lang/en/stop_words.py")
    return frozenset(runpy.run_path(str(path))["STOP_WORDS"])


def english_stopwords_version() -> str:
    """Return name and version of the library that has the list, for manifests."""
    return f"spacy {_spacy().version}"


def _spacy() -> Distribution:
    with from_extra("spacy", "the list of English stopwords"):
        return distribution("spacy")
