"""Byte-level BPE, as in GPT-2 and BART."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from corpora.errors import FarspanError
from corpora.tokenizers.huggingface import HuggingFaceTokenizer


def train(texts: Iterable[str], vocab_size: int) -> HuggingFaceTokenizer:
    """Train byte-level BPE as in GPT-2 and BART: ``<s>`` 0, ``<pad>`` 1, ``</s>`` 2, ``<unk>`` 3, 256 bytes, merges.

    For one version of tokenizers, the result depends only on the texts and ``vocab_size``. A short text may give a
    smaller vocabulary than requested.
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
