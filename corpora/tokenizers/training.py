"""Training of tokenizers from text. Both kinds decode every text exactly and have no unknown characters."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator

import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from corpora.errors import FarspanError
from corpora.tokenizers.huggingface import HuggingFaceTokenizer
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer

_LINE = 16_384  # characters; SentencePiece's lattice is built line by line
_THREADS = 8  # part of the result: sums of floats are grouped by thread


def train_sentencepiece(
    texts: Iterable[str], vocab_size: int, max_lines: int = 5_000_000, seed: int = 0
) -> SentencePieceTokenizer:
    """Train a SentencePiece unigram model with byte fallback that preserves white space and characters.

    The ids are ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2, ``<s>`` 3 (T5's first three), then 256 bytes. A line break is
    byte 10. (Only U+2581, SentencePiece's symbol for a space, is decoded as a space.) The result depends on the texts,
    their order, sizes and seed, for one version of SentencePiece.

    Args:
        texts: documents; read once. Memory holds at most ``max_lines`` lines.
        vocab_size: number of ids, including bytes and special tokens.
        max_lines: number of lines to sample if there are more.
        seed: seed of the sample.

    Raises:
        FarspanError: the vocabulary is too large or too small for the text.
    """
    sentencepiece.SetRandomGeneratorSeed(seed)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            allow_whitespace_only_pieces=True,
            input_sentence_size=max_lines,
            max_sentence_length=4 * _LINE,
            num_threads=_THREADS,
            pad_id=0,
            eos_id=1,
            unk_id=2,
            bos_id=3,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().rpartition("] ")[2]  # after the library's source line and condition
        raise FarspanError(
            f"training with vocab_size {vocab_size} failed: {reason}; change the size or give more text"
        ) from error
    return SentencePieceTokenizer(model.getvalue())


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.split("\n"):
            for start in range(0, len(line), _LINE):
                yield line[start : start + _LINE]


def train_byte_level_bpe(texts: Iterable[str], vocab_size: int) -> HuggingFaceTokenizer:
    """Train byte-level BPE as in GPT-2 and BART: ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, 256 bytes, merges.

    The result depends on the texts and the size, for one version of tokenizers. A short text may give fewer merges than
    requested.

    Raises:
        FarspanError: the vocabulary is smaller than special tokens and bytes together.
    """
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    if vocab_size < 256 + len(special):
        raise FarspanError(f"vocab_size {vocab_size} is too small; byte-level BPE needs at least {256 + len(special)}")
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trained.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(special.values()),
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return HuggingFaceTokenizer(trained.to_str().encode(), special)


KINDS: dict[str, Callable[[Iterable[str], int], SentencePieceTokenizer | HuggingFaceTokenizer]] = {
    "sentencepiece": train_sentencepiece,
    "byte-level-bpe": train_byte_level_bpe,
}


def train_tokenizer(
    kind: str, texts: Iterable[str], vocab_size: int, output_folder: str
) -> SentencePieceTokenizer | HuggingFaceTokenizer:
    """Train a tokenizer of one of ``KINDS`` and save it into a new folder, which ``load_tokenizer`` reads.

    Raises:
        FarspanError: an unknown kind, no text, a folder that is not empty, or a size that does not fit the text.
    """
    if kind not in KINDS:
        raise FarspanError(f"tokenizer kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if os.path.isdir(output_folder) and os.listdir(output_folder):
        raise FarspanError(f"output folder {output_folder} is not empty; give a new one")
    texts = (text for text in texts if text)
    first = next(texts, None)
    if first is None:
        raise FarspanError("there is no text to train a tokenizer on; check the inputs and the text field")
    tokenizer = KINDS[kind](itertools.chain([first], texts), vocab_size)
    tokenizer.save(output_folder)
    return tokenizer
