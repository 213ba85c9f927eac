"""Training of tokenizers from text."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from importlib import import_module

from corpora.errors import FarspanError
from corpora.tokenizers import kinds
from corpora.tokenizers.kinds import KINDS
from corpora.tokenizers.load import load_tokenizer
from corpora.tokenizers.protocol import Tokenizer


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
    train = import_module(f"{kinds.__name__}.{kind.replace('-', '_')}").train
    tokenizer: Tokenizer = train(itertools.chain([first], texts), vocab_size)
    if stored is None:
        tokenizer.save(output_folder)
    elif stored.fingerprint != tokenizer.fingerprint:
        raise _another(output_folder, f"fingerprint {stored.fingerprint[:16]}, not {tokenizer.fingerprint[:16]}")
    return tokenizer


def _load_stored(folder: str) -> Tokenizer | None:
    """Load the tokenizer of an earlier training; None if the folder is empty or does not exist."""
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
