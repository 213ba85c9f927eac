"""Texts in sentences, for tests of words and of scores."""

import numpy as np
from hypothesis import strategies as st

from corpora.storage.ragged import Ragged

# letters that change in lowercasing, among them the two that become ASCII, and bytes that resemble theirs in UTF-8
CHARACTERS = "aAbzZ059 .-_\n\t'éÉßΣκ\u0130\u0131\u212a\u212b\u0129\u01b0\u2102\U0001f600\u4e2d\x00\x01\x7f\xff"
sentences = st.lists(
    st.one_of(
        st.text(CHARACTERS, max_size=12),
        st.text(max_size=8),
        st.lists(st.sampled_from("a b the The cat cats running runs 1 \u212aat i\u0130a".split()), max_size=8).map(
            " ".join
        ),
    ),
    max_size=6,
)
documents = st.lists(sentences, min_size=0, max_size=5)


def starts_of(documents: list[list[str]]) -> Ragged:
    """Starts of the sentences of each document, put one behind the other."""
    ends = [np.cumsum([0, *map(len, sentences)]) for sentences in documents]
    return Ragged.from_rows([row[:-1] for row in ends], np.int64)
