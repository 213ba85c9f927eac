"""``Layout``, the special tokens around the text of a rendered row, and rules of global attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from corpora.errors import FarspanError
from corpora.printing import format_count
from objectives.api.examples import IGNORED, Examples
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import BEGIN, END, MASK, SENTENCE_MASK, SpecialTokens

Parts = TypeVar("Parts", int, np.ndarray)


@dataclass(frozen=True)
class Layout:
    """Names of the special tokens around text; None for no token.

    Attributes:
        begin: first token of source and target.
        end: last token of source and target.
        before: token before every document of a source.
        between: token between two documents of a source.
        after: token after every document of a source.
    """

    begin: str | None = BEGIN
    end: str | None = END
    before: str | None = None
    between: str | None = None
    after: str | None = None

    @property
    def names(self) -> list[str]:
        """Special tokens that the table must contain, each once."""
        return list(dict.fromkeys(filter(None, (self.begin, self.end, self.before, self.between, self.after))))

    @property
    def ends(self) -> int:
        """Number of positions of begin and end together."""
        return (self.begin is not None) + (self.end is not None)

    def around(self, parts: Parts) -> Parts:
        """Count the positions that the layout adds to a source of ``parts`` documents, a scalar or ``(n,)``."""
        edges = (self.before is not None) + (self.after is not None)
        inner = int(self.between is not None)
        return self.ends + edges * parts + inner * (parts - (parts > 0))

    def check(self, objective: str, facts: CorpusFacts, more: int = 0) -> None:
        """Check that the rows of a corpus have room for this layout and ``more`` positions."""
        around = self.ends + more
        edges = sum(token is not None for token in (self.before, self.between, self.after))
        if around <= facts.room_per_sequence and edges <= facts.room_per_document:
            return
        if facts.max_tokens + self.around(facts.max_documents) + more <= facts.sequence_length:
            return
        # Suggest at least the room that the corpus has, so that it still suits the other objectives.
        sequence, document = max(around, facts.room_per_sequence), max(edges, facts.room_per_document)
        ends = format_count(around, "position")
        raise FarspanError(
            f"{objective}: puts {ends} around a sequence and {edges} around a document; the corpus was built with "
            f"room for {facts.room_per_sequence} and {facts.room_per_document} in {facts.sequence_length} positions; "
            f"build it with --room-per-sequence {sequence} --room-per-document {document}"
        )


RULES = ("none", "bos", "separators", "masked", "masked_and_prefix")


def global_positions(
    examples: Examples, special: SpecialTokens, rule: str, layout: Layout | None = None
) -> np.ndarray | None:
    """Choose the source positions with global attention, ``(B, S)`` bool, by a rule; None for ``none``.

    - ``bos``: the first position (Longformer's classification token).
    - ``separators``: the first position and every token that ``layout`` puts before, between or after documents
      (PRIMERA: Xiao et al. 2022, section 2.1).
    - ``masked``: every sentinel and mask token, and every position with a label (CDLM: Caciularu et al. 2021, section
      2.2).
    - ``masked_and_prefix``: those of ``masked``, and as many from the first on (CDLM's published code).
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
    else:
        raise FarspanError(f"global attention {rule!r} is no rule; choose {', '.join(RULES[:-1])} or {RULES[-1]}")
    return chosen & examples.source_mask


def with_global_positions(examples: Examples, special: SpecialTokens, rule: str, layout: Layout) -> Examples:
    """Add the positions of ``rule`` to the examples; the last step of every ``render``."""
    return replace(examples, global_positions=global_positions(examples, special, rule, layout))


def _any_of(ids: np.ndarray, special: SpecialTokens, wanted: list[int]) -> np.ndarray:
    """``numpy.isin`` by a lookup table, which is several times as fast; bool like ``ids``."""
    table = np.zeros(special.vocab_size, bool)
    table[wanted] = True
    return table[ids]
