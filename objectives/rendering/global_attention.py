"""Global attention: source positions chosen by a rule that the objective names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED, Examples
from objectives.api.special_tokens import MASK, SENTENCE_MASK, SpecialTokens
from objectives.rendering.layout import Layout

RULES = ("none", "bos", "separators", "masked", "masked_and_prefix", "first_n")


def global_positions(
    examples: Examples, special: SpecialTokens, rule: str, *, layout: Layout | None = None, first: int = 0
) -> np.ndarray | None:
    """Choose the source positions with global attention, ``(B, S)`` bool, by a rule; None for ``none``.

    - ``bos``: the first position (Longformer's classification token).
    - ``separators``: the first position and every token that ``layout`` puts before, between or after documents
      (PRIMERA: Xiao et al. 2022, section 2.1).
    - ``masked``: every sentinel and mask token, and every position with a label (CDLM: Caciularu et al. 2021, section
      2.2).
    - ``masked_and_prefix``: those of ``masked``, and as many from the first on (CDLM's published code).
    - ``first_n``: the first ``first`` positions.
    """
    if rule == "none":
        return None
    ids, places = examples.source_ids, np.arange(examples.source_ids.shape[1])
    if rule == "bos":
        chosen = np.broadcast_to(places == 0, ids.shape)
    elif rule == "separators":
        edges = (layout.before, layout.between, layout.after) if layout else ()
        chosen = (places == 0) | _any_of(ids, special, [special[name] for name in edges if name is not None])
    elif rule in ("masked", "masked_and_prefix"):
        markers = [*special.sentinels, *(special[name] for name in (MASK, SENTENCE_MASK) if name in special.ids)]
        chosen = _any_of(ids, special, markers)
        if examples.labels is not None:
            chosen |= examples.labels != IGNORED
        if rule == "masked_and_prefix":
            chosen |= places < np.count_nonzero(chosen, axis=1, keepdims=True)
    elif rule == "first_n":
        chosen = np.broadcast_to(places < first, ids.shape)
    else:
        raise FarspanError(f"global attention {rule!r} is no rule; choose {', '.join(RULES[:-1])} or {RULES[-1]}")
    return chosen & examples.source_mask


def with_global_positions(examples: Examples, special: SpecialTokens, rule: str, layout: Layout) -> Examples:
    """Add the positions of ``rule`` to the examples; the last step of every ``render``."""
    return replace(examples, global_positions=global_positions(examples, special, rule, layout=layout))


def _any_of(ids: np.ndarray, special: SpecialTokens, wanted: list[int]) -> np.ndarray:
    """``numpy.isin`` by a lookup table, which is several times as fast; bool like ``ids``."""
    table = np.zeros(special.vocab_size, bool)
    table[wanted] = True
    return table[ids]
