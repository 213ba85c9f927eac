from __future__ import annotations

from importlib import import_module

import pytest

from corpora.tokenizers import kinds
from tests.corpora.tokenizers.conftest import sample_texts


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_white_space_and_unknown_characters_survive(kind):
    tokenizer = import_module(f"{kinds.__name__}.{kind.replace('-', '_')}").train(sample_texts(80), 380)
    for text in ("a  b\n\n c \t", " ﬁ①\r\n", "𝔘🌍"):
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text
