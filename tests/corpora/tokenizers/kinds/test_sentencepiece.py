from __future__ import annotations

from corpora.tokenizers.kinds.sentencepiece import train
from tests.corpora.tokenizers.conftest import sample_texts


def test_long_lines_are_learnt_from():
    text = "zebra quagga " * 5_000  # one line, longer than SentencePiece reads by default
    tokenizer = train([text, *sample_texts(80)], 380)
    assert len(tokenizer.encode(["zebra quagga"])[0]) <= 4
