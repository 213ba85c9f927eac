from __future__ import annotations

from pathlib import Path

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


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "precious").touch()
    with pytest.raises(FarspanError, match="is not empty and holds no tokenizer; give a new one"):
        train_tokenizer("byte-level-bpe", ["a"], SIZE, str(tmp_path))


@pytest.mark.parametrize("kind", KINDS)
def test_training_again_keeps_the_same_tokenizer_and_refuses_another(kind, tmp_path):
    folder = str(tmp_path / "tokenizer")
    first = train_tokenizer(kind, sample_texts(80), SIZE, folder)
    files = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()}
    assert train_tokenizer(kind, sample_texts(80), SIZE, folder).fingerprint == first.fingerprint
    with pytest.raises(FarspanError, match=r"holds another tokenizer \(fingerprint \w{16}, not \w{16}\)"):
        train_tokenizer(kind, sample_texts(40), SIZE, folder)
    with pytest.raises(FarspanError, match=r"holds another tokenizer \(\d+ ids, more than 300\); give a new folder"):
        train_tokenizer(kind, iter(()), 300, folder)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path(folder).iterdir()} == files
