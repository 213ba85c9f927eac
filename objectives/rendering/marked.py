"""``MarkedSpans``, the members of objectives whose sources have a marker in place of each hidden span."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from objectives.api.options import options_of
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import BEGIN, SpecialTokens
from objectives.rendering.layout import Layout, with_global_positions
from objectives.rendering.reconstruct import reconstruct
from objectives.rendering.render import render_masked, render_sentinels


class MarkedSpans:
    """Options, rendering and reconstruction of a dataclass whose fields are its options.

    ``separator`` is the token between two documents, or None; ``global_attention`` a rule of ``rendering.layout``.
    """

    name: ClassVar[str]
    begin: bool
    separator: str | None
    global_attention: str

    @property
    def options(self) -> dict[str, Any]:
        """All options as JSON values."""
        return options_of(self)

    @property
    def layout(self) -> Layout:
        """The special tokens around the text."""
        return Layout(begin=BEGIN if self.begin else None, between=self.separator)

    @property
    def marker(self) -> str | None:
        """The token in place of every span; None for numbered sentinels in source and target."""
        return None

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check the room for the tokens around the text, and number the special tokens."""
        self.layout.check(self.name, facts)
        names = [*self.layout.names, *filter(None, [self.marker])]
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, names)

    def render(
        self,
        batch: SequenceBatch,
        masks: MaskBatch,
        special: SpecialTokens,
        *,
        segment_ids: bool = False,
        heads: np.ndarray | None = None,
    ) -> Examples:
        """Render the source with a marker for each span, and the target with the hidden text.

        ``heads``: ``(n,)`` int32, id before each source, -1 for none; only with numbered sentinels.
        """
        layout, mask = self.layout, self.marker
        if mask is None:
            examples = render_sentinels(batch, masks, special, layout, heads=heads, segment_ids=segment_ids)
        else:
            examples = render_masked(batch, masks, special, layout, mask=mask, segment_ids=segment_ids)
        return with_global_positions(examples, special, self.global_attention, layout)

    def reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        """Recover the text of every row, rows of int32, from the output of ``render``."""
        return reconstruct(examples, masks, special, self.layout, mask=self.marker)
