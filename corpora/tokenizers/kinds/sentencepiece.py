"""SentencePiece unigram models with byte fallback."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import sentencepiece

from corpora.errors import FarspanError
from corpora.tokenizers.sentencepiece import SentencePieceTokenizer

_LINE = 16_384  # characters; SentencePiece's lattice is built line by line
_THREADS = 8  # affects the result, because sums of floats are grouped by thread


def train(texts: Iterable[str], vocab_size: int, max_lines: int = 5_000_000, seed: int = 0) -> SentencePieceTokenizer:
    """Train a SentencePiece unigram model with byte fallback that preserves white space and characters.

    The ids are ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2 (as in T5), ``<s>`` 3, then 256 bytes. A line break is byte 10,
    and U+2581, SentencePiece's sign for a space, three bytes. For one version of SentencePiece, the result depends only
    on the texts, their order, ``vocab_size``, ``max_lines`` and ``seed``.

    ``texts``: documents, read once; at most ``max_lines`` lines are held in memory. ``vocab_size``: number of ids,
    including bytes and special tokens.
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
        reason = str(error).strip().rpartition("] ")[2]  # without the library's source line and condition
        raise FarspanError(
            f"training with vocab_size {vocab_size} failed: {reason}; change the size or give more text"
        ) from error
    return SentencePieceTokenizer(model.getvalue())


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.split("\n"):
            for start in range(0, len(line), _LINE):
                yield line[start : start + _LINE]
