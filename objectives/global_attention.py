"""Which source positions attend globally, by a rule that an objective names."""

from __future__ import annotations

import numpy as np

from corpora.errors import FarspanError
from objectives.examples import IGNORED, Examples
from objectives.special_tokens import MASK, SENTENCE_MASK, SpecialTokens


def global_positions(
    examples: Examples, special: SpecialTokens, rule: str, *, separator: str | None = None, first: int = 0
) -> np.ndarray | None:
    """Source positions with global attention, ``(B, S)`` bool, by a rule of the objective; None for ``none``.

    - ``bos``: the first position (Longformer's classification token).
    - ``separators``: the first position and every separator (PRIMERA, section 2.1).
    - ``masked``: every sentinel and mask token, and, where labels are aligned with the source, every position that has
      one (CDLM, section 2.2).
    - ``first_n``: the first ``first`` positions.

    Raises:
        FarspanError: for another rule.
    """
    ids, places = examples.source_ids, np.arange(examples.source_ids.shape[1])
    if rule == "none":
        return None
    if rule == "bos":
        chosen = np.broadcast_to(places == 0, ids.shape)
    elif rule == "separators":
        chosen = (places == 0) | (ids == special.ids.get(separator or "", -1))
    elif rule == "masked":
        markers = [*special.sentinels, *(special[name] for name in (MASK, SENTENCE_MASK) if name in special.ids)]
        chosen = np.isin(ids, markers)
        if examples.labels is not None:
            chosen |= examples.labels != IGNORED
    elif rule == "first_n":
        chosen = np.broadcast_to(places < first, ids.shape)
    else:
        raise FarspanError(f"global attention {rule!r} is no rule; choose none, bos, separators, masked or first_n")
    return chosen & examples.source_mask
