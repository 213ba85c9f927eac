"""The protocol of a tokenizer, and its special ids."""

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
        owned_tokens: the roles ``<pad>``, ``<bos>``, ``<eos>``, ``<unk>``, ``<mask>`` that the tokenizer has -> id,
            and its other special tokens (SentencePiece: control symbols) by their text -> id. No text yields these,
            except ``<unk>``; a document whose text yields one is rejected.
        engine: the library that encodes.
    """

    vocab_size: int
    fingerprint: str
    owned_tokens: dict[str, int]
    engine: str

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Rows of int32 ids, one per text; never a special token, even if a text spells one."""

    def encode_with_starts(self, texts: Sequence[str]) -> tuple[Ragged, Ragged]:
        """As ``encode``, and rows of int64: first byte of each token in the text's UTF-8, ascending."""

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        """Text of ``(n,)`` ids as the tokenizer's own library decodes it, special tokens included."""

    def decode_with_offsets(self, ids: np.ndarray | Sequence[int]) -> tuple[str, np.ndarray]:
        """As ``decode``, and ``(n,)`` int64: index of the character in which each token begins.

        A character that is split at the ends of the ids becomes U+FFFD.

        Raises:
            FarspanError: an id outside the vocabulary.
        """

    def serialized(self) -> dict[str, bytes]:
        """The files (name -> content) that ``load_tokenizer`` reads back from a folder."""

    def save(self, folder: str) -> None:
        """Write ``serialized()`` into a folder."""


def special_ids(owned_tokens: Mapping[str, int]) -> np.ndarray:
    """Ids of all ``owned_tokens`` but ``<unk>``, ``(n,)`` int64: text never yields them."""
    return np.array(sorted({number for name, number in owned_tokens.items() if name != "<unk>"}), np.int64)
