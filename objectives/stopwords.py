"""Lists of words that say little, by name."""

from __future__ import annotations

import runpy
from functools import lru_cache
from importlib.metadata import distribution, version

LISTS = ("none", "english")


@lru_cache(maxsize=1)
def english_stopwords() -> frozenset[str]:
    """spaCy's 326 English words.

    PEGASUS leaves out 127 others' (NLTK's English list of 2015), of which three are not among spaCy's once both are
    split as text is: don, having, theirs; some 200 of spaCy's are not among PEGASUS's, such as also, however, one.
    """
    # The file alone: its package would bring torch.
    return frozenset(
        runpy.run_path(str(distribution("spacy").locate_file("spacy/lang/en/stop_words.py")))["STOP_WORDS"]
    )


def english_stopwords_version() -> str:
    return f"spacy {version('spacy')}"
