"""A damaged tokenizer works, or is refused in one line that names the file and the cure; it never ends the process."""

from __future__ import annotations

import io
import random

import pytest
import sentencepiece

from corpora.errors import FarspanError
from corpora.tokenizers.load import load_tokenizer
from tests.corpora.tokenizers.conftest import sample_texts

TEXTS = ["The river <s> runs, 世界 1984 \n naïve ﬁ ① Ⅷ e\u0301 １２", " " * 30 + "x", "\x00é株式会社㍿ｶﾞ", ""]


@pytest.fixture(scope="session")
def normalising() -> bytes:
    """A SentencePiece model with a compiled table of the characters that it replaces, 240 KB."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in sample_texts() for line in text.split("\n")),
        model_writer=model,
        vocab_size=380,
        byte_fallback=True,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    return model.getvalue()


def damaged(data: bytes, seed: int) -> bytes:
    """Cut short, or with one to three bits turned over."""
    draw = random.Random(seed)
    flips = draw.randrange(4)
    if not flips:
        return data[: draw.randrange(len(data))]
    broken = bytearray(data)
    for _ in range(flips):
        broken[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(broken)


def check(path, data: bytes, seeds: range) -> int:
    """Number of damaged files that are refused."""
    refused = 0
    for seed in seeds:
        path.write_bytes(damaged(data, seed))
        try:
            tokenizer = load_tokenizer(str(path))
        except FarspanError as error:
            message = str(error)
            assert message.startswith(f"tokenizer {path}: "), (seed, message)
            assert message.isprintable(), (seed, message)
            assert len(message) < 400, (seed, message)
            refused += 1
            continue
        for row in tokenizer.encode_with_starts(TEXTS)[0]:
            tokenizer.decode(row)
    return refused


@pytest.mark.parametrize("kind", ["sentence_pieces", "byte_level", "metaspace"])
def test_some_flips_and_cuts(kind, request, tmp_path):
    data = next(iter(request.getfixturevalue(kind).serialized().values()))
    assert check(tmp_path / "tokenizer", data, range(40)) > 10


def test_a_piece_that_is_no_text(sentence_pieces, tmp_path):
    data = sentence_pieces.serialized()["tokenizer.model"]
    path = tmp_path / "spiece.model"
    path.write_bytes(data.replace("世".encode(), b"\xe4\xb8\x16", 1))
    with pytest.raises(FarspanError, match=r"spiece.model: not a SentencePiece model, or a damaged one \(.*\)"):
        load_tokenizer(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sentence_pieces", "byte_level", "word_piece", "metaspace", "byte_fallback"])
def test_flips_and_cuts(kind, request, tmp_path):
    """1,000 damaged files."""
    data = next(iter(request.getfixturevalue(kind).serialized().values()))
    assert check(tmp_path / "tokenizer", data, range(200)) > 50


@pytest.mark.slow
def test_flips_in_a_table_of_characters(normalising, tmp_path):
    assert check(tmp_path / "tokenizer", normalising, range(200)) > 50
