"""``Tokenizer``, the protocol of all tokenizers, and their special ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from corpora.storage.ragged import Ragged


class Tokenizer(Protocol):
    """Conversion of text to ids and back.

    Attributes:
        vocab_size: largest id + 1.
        fingerprint: hex sha256 of everything that affects the ids of a text, and of nothing else.
        owned_tokens: ids of the roles ``<pad>``, ``<bos>``, ``<eos>``, ``<unk>``, ``<mask>`` that the tokenizer has,
            and of its other special tokens (SentencePiece: control symbols) by their text. Text never yields them,
            except ``<unk>``; a document whose text does is rejected.
        engine: the library that encodes.
    """

    vocab_size: int
    owned_tokens: dict[str, int]

    @property
    def fingerprint(self) -> str: ...

    @property
    def engine(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Encode texts to rows of int32 ids, one row per text; never a special token, even if a text spells one."""

    def encode_with_starts(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Encode texts; return also rows of int64, the first byte of each token in the text's UTF-8, ascending."""

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        """Decode ids ``(n,)`` as the tokenizer's own library does, special tokens included.

        Raises:
            FarspanError: an id outside the vocabulary.
        """

    def decode_with_offsets(self, ids: np.ndarray | Sequence[int]) -> tuple[str, np.ndarray]:
        """Decode ids ``(n,)``; return also the index of the character in which each token starts, ``(n,)`` int64.

        A character of which the ids have only some bytes becomes U+FFFD.

        Raises:
            FarspanError: an id outside the vocabulary.
        """

    def serialized(self) -> dict[str, bytes]:
        """Return the files (name -> content) that ``load_tokenizer`` reads back from a folder."""

    def save(self, folder: str) -> None:
        """Write ``serialized()`` into a folder."""


def special_ids(owned_tokens: Mapping[str, int]) -> np.ndarray:
    """Return the ids of all ``owned_tokens`` except ``<unk>``, ``(n,)`` int64: text never yields them."""
    return np.array(sorted({number for name, number in owned_tokens.items() if name != "<unk>"}), np.int64)
