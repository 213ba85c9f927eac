"""Small tokenizers of every supported kind, trained once on text of our own."""

import io
import json
import random
from typing import Any

import pytest
import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer
from corpora.tokenizers.training import train_byte_level_bpe, train_sentencepiece

_TEXT = (
    "the river runs past old mills where people's boats aren't moored any longer, and 1984 was its driest year; "
    "naïve cafés in Zürich sell déjà-vu 世界 地図 at 12.50 each. we'll see they've gone"
)


def sample_texts(count: int = 300) -> list[str]:
    rng = random.Random(1)
    words = _TEXT.split()
    return [
        "\n".join(" ".join(rng.choices(words, k=rng.randint(3, 12))).capitalize() + "." for _ in range(3))
        for _ in range(count)
    ]


def sentence_piece_model(texts: list[str] | None = None, **options: Any) -> bytes:
    """A SentencePiece model of the library, with options of its own."""
    model = io.BytesIO()
    lines = (line for text in texts or sample_texts() for line in text.split("\n"))
    defaults = {"vocab_size": 380, "byte_fallback": True, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **defaults | options)
    return model.getvalue()


@pytest.fixture(scope="package", autouse=True)
def engines_at_once():
    """Encode with gigatoken from the first character."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("corpora.tokenizers.huggingface._FIRST", 0)
        yield


@pytest.fixture(scope="session")
def byte_level() -> HuggingFaceTokenizer:
    return train_byte_level_bpe(sample_texts(), 500)


@pytest.fixture(scope="session")
def sentence_pieces() -> SentencePieceTokenizer:
    return train_sentencepiece(sample_texts(), 380)


def _wrap(trained: tokenizers.Tokenizer, trainer: Any) -> HuggingFaceTokenizer:
    trained.train_from_iterator(sample_texts(), trainer)
    return HuggingFaceTokenizer(trained.to_str().encode())


@pytest.fixture(scope="session")
def word_piece() -> HuggingFaceTokenizer:
    trained = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizers.BertNormalizer()
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trained.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return _wrap(trained, trainers.WordPieceTrainer(vocab_size=300, special_tokens=names, show_progress=False))


@pytest.fixture(scope="session")
def metaspace() -> HuggingFaceTokenizer:
    """As Hugging Face writes T5."""
    trained = tokenizers.Tokenizer(models.Unigram())
    trained.normalizer = normalizers.NFKC()
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.decoder = decoders.Metaspace()
    names = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=names, unk_token="<unk>", show_progress=False)
    return _wrap(trained, trainer)


@pytest.fixture(scope="session")
def byte_fallback() -> HuggingFaceTokenizer:
    """As Hugging Face writes Llama 2."""
    trained = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    trained.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    alphabet = [chr(c) for c in range(32, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=names, initial_alphabet=alphabet, limit_alphabet=100, show_progress=False
    )
    trained.train_from_iterator([word for text in sample_texts() for word in text.split()], trainer)
    config = json.loads(trained.to_str())
    config["added_tokens"] = config["added_tokens"][:3]  # bytes are pieces of the model, not special
    return HuggingFaceTokenizer(json.dumps(config).encode())
