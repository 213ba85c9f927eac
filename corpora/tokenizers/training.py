"""Training of tokenizers from text.

Every kind decodes every text exactly and has no unknown characters. Functions import the libraries, because options of
commands need the names of the kinds alone.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from corpora.errors import FarspanError

if TYPE_CHECKING:
    from corpora.tokenizers.huggingface import HuggingFaceTokenizer
    from corpora.tokenizers.protocol import Tokenizer
    from corpora.tokenizers.sentencepiece import SentencePieceTokenizer

_LINE = 16_384  # characters; SentencePiece's lattice is built line by line
_THREADS = 8  # of SentencePiece; affects the result, because sums of floats are grouped by thread


def train_tokenizer(kind: str, texts: Iterable[str], vocab_size: int, output_folder: str) -> Tokenizer:
    """Train a tokenizer of one of ``KINDS`` and save it into a folder, which ``load_tokenizer`` reads.

    A folder that already holds this tokenizer stays as it is.
    """
    if kind not in KINDS:
        raise FarspanError(f"tokenizer kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
    stored = _load_stored(output_folder)
    if stored and stored.vocab_size > vocab_size:
        raise _another(output_folder, f"{stored.vocab_size:,} ids, more than {vocab_size:,}")
    texts = (text for text in texts if text)
    first = next(texts, None)
    if first is None:
        raise FarspanError("there is no text to train a tokenizer on; check the inputs and the text field")
    tokenizer = KINDS[kind](itertools.chain([first], texts), vocab_size)
    if stored is None:
        tokenizer.save(output_folder)
    elif stored.fingerprint != tokenizer.fingerprint:
        raise _another(output_folder, f"fingerprint {stored.fingerprint[:16]}, not {tokenizer.fingerprint[:16]}")
    return tokenizer


def _load_stored(folder: str) -> Tokenizer | None:
    """Load the tokenizer of an earlier training; None if the folder is empty or does not exist."""
    from corpora.tokenizers.load import load_tokenizer

    if not (os.path.isdir(folder) and os.listdir(folder)):
        return None
    try:
        return load_tokenizer(folder)
    except FarspanError as error:
        raise FarspanError(f"output folder {folder} is not empty and holds no tokenizer; give a new one") from error


def _another(folder: str, difference: str) -> FarspanError:
    return FarspanError(
        f"output folder {folder} holds another tokenizer ({difference}); give a new folder, or delete it to train again"
    )


def train_byte_level_bpe(texts: Iterable[str], vocab_size: int) -> HuggingFaceTokenizer:
    """Train byte-level BPE as in GPT-2 and BART.

    The ids are ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, 256 bytes, merges.

    For one version of tokenizers, the result depends only on the texts and ``vocab_size``. A short text may give a
    smaller vocabulary than requested.
    """
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    from corpora.tokenizers.huggingface import HuggingFaceTokenizer

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


def train_sentencepiece(
    texts: Iterable[str], vocab_size: int, max_lines: int = 5_000_000, seed: int = 0
) -> SentencePieceTokenizer:
    """Train a SentencePiece unigram model with byte fallback that preserves white space and characters.

    The ids are ``<pad>`` 0, ``</s>`` 1, ``<unk>`` 2 (as in T5), ``<s>`` 3, then 256 bytes. A line break is byte 10,
    and U+2581, SentencePiece's sign for a space, three bytes. For one version of SentencePiece, the result depends only
    on the texts, their order, ``vocab_size``, ``max_lines`` and ``seed``.

    ``texts``: documents, read once; at most ``max_lines`` lines are held in memory. ``vocab_size``: number of ids,
    including bytes and special tokens.
    """
    import sentencepiece

    from corpora.tokenizers.sentencepiece import SentencePieceTokenizer

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


KINDS: Mapping[str, Callable[[Iterable[str], int], Tokenizer]] = {
    "byte-level-bpe": train_byte_level_bpe,
    "sentencepiece": train_sentencepiece,
}
