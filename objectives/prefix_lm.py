"""Prefix language modelling (T5, UL2): the encoder reads the beginning of a row, and the decoder writes the rest.

T5's published code draws the pivot between the two evenly, so that on average the given share is the target, and puts
no sentinel (``random_prefix_noise_mask``; Raffel et al. 2020, section 3.3.1). UL2 publishes two rules (Tay et al.
2022): its table gives the S-denoiser one span, a quarter of the row, which T5's span corruption always places at the
end; its code (section 9.2) draws the pivot evenly from all places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.schemas.sequences import SequenceBatch
from objectives.api.masks import MaskBatch
from objectives.api.options import FITS, check, check_choice, check_flag, check_layout, check_whole, is_share, normalize
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import SpecialTokens
from objectives.draws.compositions import PLACEMENTS, SpanDraws, count_hidden_tokens, draw_masks
from objectives.rendering.marked import MarkedSpans


@dataclass(frozen=True)
class PrefixLm(MarkedSpans):
    """Objective ``prefix_lm``: hides the end of a row.

    Attributes:
        pivot: number of tokens before the target, in a row of L tokens: ``t5``, evenly from ``(1 - 2 density)(L - 1)``
            to L - 1; ``uniform``, evenly from 1 to L - 1 (UL2's code); or ``last``, always all but the last
            ``density`` (UL2's table).
        density: mean fraction of a row's tokens in the target, up to 0.5 with ``t5``; ``uniform`` ignores it.
        sentinel: True if the first sentinel stands at the end of the source and at the beginning of the target.
        begin: True if source and target start with ``<bos>``; both always end with ``<eos>``.
        separator: token between two documents of the source, ``<doc-sep>`` or ``<eos>``, or None.
        target_length: decoder positions, including sentinel, begin and end; None for as many as needed.
        fit: if a row may need more than ``target_length``: ``error`` before work starts; with ``reduce`` or ``window``
            the pivot is drawn from those places whose target fits.
        global_attention: ``none``, ``bos``, ``separators`` or ``masked``.
    """

    pivot: str = "t5"
    density: float = 0.5
    sentinel: bool = False
    begin: bool = False
    separator: str | None = None
    target_length: int | None = None
    fit: str = "error"
    global_attention: str = "none"

    name: ClassVar[str] = "prefix_lm"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "t5_prefix": {"pivot": "t5", "density": 0.5},
        "ul2_prefix": {"pivot": "last", "density": 0.25, "sentinel": True},
        "ul2_prefix_listing": {"pivot": "uniform"},
    }

    def __post_init__(self) -> None:
        check_choice(self, "pivot", "t5", "uniform", "last")
        most = 0.5 if self.pivot == "t5" else 1.0
        valid = is_share(self.density) and self.density <= most
        check(
            self, "density", valid, f"a number above 0, up to 0.5{' with pivot t5' if self.pivot == 't5' else ' or 1'}"
        )
        check_flag(self, "sentinel")
        check_choice(self, "fit", *FITS)
        check_layout(self)
        check_whole(self, "target_length", least=self._framing + 1, null=True)
        normalize(self, density=float(self.density))

    @property
    def _framing(self) -> int:
        """Positions of a target beside its text."""
        return self.layout.ends + self.sentinel

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check the room around the text and the longest target, and number the special tokens."""
        self.layout.check(self.name, facts)
        needed = int(self._pivots(np.array([facts.max_tokens]))[0, 2]) + self._framing
        if self.target_length is not None and needed > self.target_length:
            raise FarspanError(
                f"prefix_lm: option target_length is {self.target_length}, but a row of {facts.max_tokens} tokens may "
                f"need {needed}; raise target_length to {needed}, or give fit=window for later pivots"
            )
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, self.layout.names, int(self.sentinel))

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds on source and target lengths over all draws, ``(n,)`` int64 each."""
        tokens, parts = batch.tokens.lengths.astype(np.int64), batch.document_starts.lengths.astype(np.int64)
        _, last, hidden = self._pivots(tokens).T
        source = np.where(hidden > 0, last + self.sentinel, tokens) + self.layout.around(parts)
        return source, np.where(hidden > 0, hidden + self._framing, 0)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the pivot of n rows, by (key, options, sequence id, length) of the row."""
        return draw_masks(batch, self.draws(batch.ids(), batch.tokens.lengths, batch.document_starts.lengths, key))

    def draws(self, ids: Sequence[bytes], tokens: np.ndarray, parts: np.ndarray, key: bytes) -> SpanDraws:
        """Return the numbers that ``mask`` draws rows by: n ids, and ``(n,)`` numbers of tokens and documents."""
        first, last, most = self._pivots(tokens).T
        # The remainder of a uniform 64-bit number is uniform to one part in 2**32 at least.
        keys = id_keys(key, ids)
        pivots = first + (keys[:, 0] % (last - first + 1).astype(np.uint64)).astype(np.int64)
        # One span, of all tokens from the pivot on; only its first piece has the sentinel.
        sizes, spans = np.where(most > 0, tokens - pivots, 0), (most > 0).astype(np.int64)
        free = np.full(len(tokens), PLACEMENTS.index("free"))
        around, ends = self.layout.around(parts), np.full(len(tokens), self.layout.ends)
        return SpanDraws(keys, sizes, sizes, spans, pivots, free, spans * self.sentinel, around, ends)

    def _pivots(self, tokens: np.ndarray) -> np.ndarray:
        """Return first and last pivot of rows of ``tokens`` tokens, and the most tokens hidden, ``(n, 3)`` int64.

        Nothing is hidden in a row without tokens, nor, except with ``t5``, in a row of a single one.
        """
        last = np.maximum(tokens - 1, 0).astype(np.int64)
        if self.pivot == "t5":
            first = np.minimum(np.rint((1 - 2 * self.density) * last).astype(np.int64), last)
        elif self.pivot == "uniform":
            first = np.minimum(1, last)
        else:
            first = last = tokens - count_hidden_tokens(tokens, self.density)
        if self.target_length is not None and self.fit != "error":
            first = np.maximum(first, tokens - (self.target_length - self._framing))
            last = np.maximum(first, last)
        hidden = np.where((tokens > 1) | (self.pivot == "t5"), tokens - first, 0)
        return np.stack([first, last, hidden], axis=1)
