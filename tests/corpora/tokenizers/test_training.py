from __future__ import annotations

import pytest

from corpora.errors import FarspanError
from corpora.tokenizers.kinds import KINDS
from corpora.tokenizers.load import load_tokenizer
from corpora.tokenizers.training import train_tokenizer
from tests.corpora.tokenizers.conftest import sample_texts

SIZE = 380


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_texts_train_the_same_tokenizer(kind, tmp_path):
    first = train_tokenizer(kind, iter(sample_texts(80)), SIZE, str(tmp_path / "a"))
    again = train_tokenizer(kind, iter(sample_texts(80)), SIZE, str(tmp_path / "b"))
    assert first.serialized() == again.serialized()
    assert load_tokenizer(str(tmp_path / "a")).fingerprint == first.fingerprint
    assert first.vocab_size <= SIZE
    assert set(first.owned_tokens) == {"<pad>", "<bos>", "<eos>", "<unk>"}


@pytest.mark.parametrize(
    ("kind", "texts", "size", "message"),
    [
        ("bpe", ["a"], SIZE, ", ".join(KINDS)),
        ("byte-level-bpe", ["", ""], SIZE, "no text"),
        ("byte-level-bpe", ["a"], 256, "at least 260"),
        ("sentencepiece", ["a b c"], 5_000, "too high"),
        ("sentencepiece", ["a b c"], 100, "vocab_size 100"),
    ],
)
def test_bad_input(kind, texts, size, message, tmp_path):
    with pytest.raises(FarspanError, match=message):
        train_tokenizer(kind, texts, size, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_full_folder_is_refused(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(FarspanError, match="not empty"):
        train_tokenizer("byte-level-bpe", ["a"], SIZE, str(tmp_path))
