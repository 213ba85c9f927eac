"""Training of tokenizers from text."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from importlib import import_module

from corpora.errors import FarspanError
from corpora.tokenizers import kinds
from corpora.tokenizers.kinds import KINDS
from corpora.tokenizers.protocol import Tokenizer


def train_tokenizer(kind: str, texts: Iterable[str], vocab_size: int, output_folder: str) -> Tokenizer:
    """Train a tokenizer of one of ``KINDS`` and save it into a new folder, which ``load_tokenizer`` reads.

    Raises:
        FarspanError: an unknown kind, no text, a folder that is not empty, or a vocabulary too large or too small for
            the text.
    """
    if kind not in KINDS:
        raise FarspanError(f"tokenizer kind {kind!r} is unknown; choose one of {', '.join(KINDS)}")
    if os.path.isdir(output_folder) and os.listdir(output_folder):
        raise FarspanError(f"output folder {output_folder} is not empty; give a new one, or delete it to train again")
    texts = (text for text in texts if text)
    first = next(texts, None)
    if first is None:
        raise FarspanError("there is no text to train a tokenizer on; check the inputs and the text field")
    train = import_module(f"{kinds.__name__}.{kind.replace('-', '_')}").train
    tokenizer: Tokenizer = train(itertools.chain([first], texts), vocab_size)
    tokenizer.save(output_folder)
    return tokenizer
