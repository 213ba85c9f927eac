"""Tools that an objective may need in addition to the rows: a tokenizer, a scorer, an entity recognizer.

The caller creates and passes them, so that objectives load no model library themselves::

    objective = load_objective("model_based", "bart_ls").with_tools(Tools(tokenizer, scorer=scorer))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from corpora.tokenizers.protocol import Tokenizer
from objectives.api.special_tokens import SpecialTokens


class Scorer(Protocol):
    """An encoder-only masked language model.

    Attributes:
        fingerprint: hash of weights and configuration; recorded with the masks that it affects.
        tokenizer_fingerprint: fingerprint of its tokenizer.
        special: its special tokens, at least ``<pad>`` and ``<mask>``.
    """

    @property
    def fingerprint(self) -> str: ...

    @property
    def tokenizer_fingerprint(self) -> str: ...

    @property
    def special(self) -> SpecialTokens: ...

    def losses(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Compute the cross-entropy of each label, in nats.

        Args:
            ids: ``(B, S)`` int32, text ids and those of ``special``.
            lengths: ``(B,)`` int32, positions of each row without padding.
            labels: ``(B, S)`` int32, the token to predict, or ``IGNORED``.

        Returns:
            ``(B, S)`` float32, 0 for positions without a label. Up to rounding, a row's losses do not depend on the
            other rows.
        """


class EntityRecognizer(Protocol):
    """Finds named entities.

    Attributes:
        name: model and version; recorded with the masks that it affects.
    """

    @property
    def name(self) -> str: ...

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Find the entities of each text: first character and end, ``(k, 2)`` int64, ascending and disjoint."""


@dataclass(frozen=True)
class Tools:
    """Tools that a caller passes to an objective.

    Attributes:
        tokenizer: the tokenizer of the corpus.
        scorer: the scorer, for objectives that score spans with a model.
        recognizer: the recognizer, for objectives that need named entities; if None, they load the model named in their
            options.
    """

    tokenizer: Tokenizer
    scorer: Scorer | None = None
    recognizer: EntityRecognizer | None = None
