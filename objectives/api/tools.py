"""What an objective may need besides the rows: a tokenizer for their text, a model that scores, one that finds names.

They are objects that the caller makes and hands in, so that objectives load no model library themselves:

    objective = load_objective("model_based", "bart_ls").with_tools(Tools(tokenizer, scorer=scorer))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from corpora.tokenizers import Tokenizer
from objectives.api.special_tokens import SpecialTokens


class Scorer(Protocol):
    """An encoder-only masked language model.

    Attributes:
        fingerprint: of weights and configuration; recorded with the masks that it decided.
        tokenizer_fingerprint: of the tokenizer whose ids it knows.
        special: the special tokens it knows, ``<pad>`` and ``<mask>`` at least.
    """

    @property
    def fingerprint(self) -> str: ...

    @property
    def tokenizer_fingerprint(self) -> str: ...

    @property
    def special(self) -> SpecialTokens: ...

    def losses(self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Cross-entropy, in nats, of each asked token.

        Args:
            ids: ``(B, S)`` int32, text ids and those of ``special``.
            lengths: ``(B,)`` int32, real positions of each row.
            labels: ``(B, S)`` int32, the token asked for, ``IGNORED`` where nothing is.

        Returns:
            ``(B, S)`` float32, 0 where nothing is asked. A row's losses do not depend on the rows beside it, up to the
            rounding of floats.
        """


class EntityRecognizer(Protocol):
    """Finds named entities.

    Attributes:
        name: model and version; recorded with the masks that it decided.
    """

    @property
    def name(self) -> str: ...

    def find(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text ``(k, 2)`` int64: first character and end of each entity, ascending and disjoint."""


@dataclass(frozen=True)
class Tools:
    """What a caller hands to an objective.

    Attributes:
        tokenizer: of the corpus.
        scorer: for objectives that ask a model what is hard.
        recognizer: for objectives that ask which names a text has; None lets them load what their options name.
    """

    tokenizer: Tokenizer
    scorer: Scorer | None = None
    recognizer: EntityRecognizer | None = None
