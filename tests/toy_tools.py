"""Tools that need no model: every id is a word, every loss and every name follows from the words themselves."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from objectives.api.examples import IGNORED
from objectives.api.protocol import Tools
from objectives.api.special_tokens import MASK, PAD, SpecialTokens
from tests.factories import OWNED, VOCAB


class ToyTokenizer(Any):
    """Id n is `` wn``; it cannot encode."""

    vocab_size = VOCAB
    fingerprint = "toy"
    owned_tokens = OWNED
    engine = "toy"

    def __init__(self) -> None:
        self._words = [f" w{number}" for number in range(VOCAB)]
        self._sizes = np.array([len(word) for word in self._words])

    def decode(self, ids: np.ndarray | Sequence[int]) -> str:
        return self.decode_with_offsets(ids)[0]

    def decode_with_offsets(self, ids: np.ndarray | Sequence[int]) -> tuple[str, np.ndarray]:
        ids = np.asarray(ids, np.int64)
        ends = np.cumsum(self._sizes[ids])
        return "".join(map(self._words.__getitem__, ids.tolist())), ends - self._sizes[ids]


class ToyScorer:
    """A token's loss follows from its id and its place."""

    fingerprint = "toy scorer"
    tokenizer_fingerprint = "toy"
    special = SpecialTokens.append(VOCAB, OWNED, [MASK])

    def losses(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        real = np.arange(ids.shape[1]) < lengths[:, None]
        assert (ids[~real] == self.special[PAD]).all()
        asked = labels != IGNORED
        assert not (asked & ~real).any()
        mixed = (labels.astype(np.int64) * 7919 + np.arange(ids.shape[1]) * 104_729) % 1009
        return np.where(asked, mixed / 100, 0).astype(np.float32)


class ToyRecognizer:
    """Words that end with 7 are names."""

    name = "toy 1.0"

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        found = [[match.span() for match in re.finditer(r"\bw\d*7\b", text)] for text in texts]
        return [np.array(spans, np.int64).reshape(-1, 2) for spans in found]


TOOLS = Tools(ToyTokenizer(), ToyScorer(), ToyRecognizer())
