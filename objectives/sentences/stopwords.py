"""Lists of stopwords, by name."""

from __future__ import annotations

import runpy
from functools import lru_cache
from importlib.metadata import Distribution, distribution

from corpora.errors import from_extra


@lru_cache(maxsize=1)
def english_stopwords() -> frozenset[str]:
    """spaCy's 326 English words.

    PEGASUS uses another list: the 127 words of NLTK's in 2015. After splitting both like text, spaCy's lacks don,
    having and theirs, and has 188 more, such as also, however, one. 84 to 97 % of the sentences that presets choose in
    Wikipedia are the same with either (docs/objectives.md). PEGASUS's list can be given as option ``stopwords``.
    """
    # The file alone: its package would bring torch.
    path = _spacy().locate_file("spacy/lang/en/stop_words.py")
    return frozenset(runpy.run_path(str(path))["STOP_WORDS"])


def english_stopwords_version() -> str:
    return f"spacy {_spacy().version}"


def _spacy() -> Distribution:
    with from_extra("spacy", "the list of English stopwords"):
        return distribution("spacy")
