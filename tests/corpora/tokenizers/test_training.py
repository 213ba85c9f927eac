"""Training of tokenizers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from corpora.tokenizers import kinds
from corpora.tokenizers.kinds import KINDS
from corpora.tokenizers.kinds.sentencepiece import train
from corpora.tokenizers.load import load_tokenizer
from corpora.tokenizers.protocol import special_ids
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


def test_special_ids_are_those_of_no_text():
    owned = {"<pad>": 5, "<unk>": 2, "<bos>": 0, "<mask>": 9, "[CLS]": 0}
    assert special_ids(owned).tolist() == [0, 5, 9]
    assert special_ids({"<unk>": 2}).tolist() == []


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_white_space_and_unknown_characters_survive(kind):
    tokenizer = import_module(f"{kinds.__name__}.{kind.replace('-', '_')}").train(sample_texts(80), 380)
    for text in ("a  b\n\n c \t", " ﬁ①\r\n", "𝔘🌍"):
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_long_lines_are_learnt_from():
    text = "zebra quagga " * 5_000  # one line, longer than SentencePiece reads by default
    tokenizer = train([text, *sample_texts(80)], 380)
    assert len(tokenizer.encode(["zebra quagga"])[0]) <= 4
