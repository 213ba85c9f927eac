"""Span corruption (T5, BART-LS): a sentinel replaces each random span in the source, and the target has the spans.

The length of a row determines its numbers of hidden tokens and of spans. The lengths of hidden and of visible stretches
are two independent uniform random compositions (Raffel et al. 2020, section 3.1.4, and the published code). So the
first token of a row is never hidden, the last always is, and spans are not adjacent unless a document boundary cuts a
span in two. The option ``placement`` changes this.

Products and quotients are computed in float64 and rounded half to even. TensorFlow multiplies in float32, so T5's own
pipeline hides one token more or less at some lengths (166 lengths below 20,000 at density 0.15). docs/objectives.md
lists all differences from published systems.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from corpora.printing import format_count
from corpora.schemas.sequences import SequenceBatch
from objectives.api.masks import MaskBatch
from objectives.api.options import (
    FITS,
    check,
    check_choice,
    check_layout,
    check_numbers,
    check_whole,
    is_number,
    is_share,
    normalize,
    options_of,
)
from objectives.api.protocol import CorpusFacts
from objectives.api.special_tokens import DOCUMENT_SEPARATOR, SpecialTokens
from objectives.draws.compositions import PLACEMENTS, SpanDraws, count_hidden_tokens, count_spans, draw_masks
from objectives.rendering.marked import MarkedSpans

# Documents are concatenated without a separator. Targets have 1,024 positions, which limits the hidden tokens.
_BART_LS = {
    "density": 1 / 16,
    "mean_span_lengths": [5],
    "sentinel_order": "ascending",
    "begin": True,
    "separator": None,
    "target_length": 1024,
    "fit": "reduce",
}


@dataclass(frozen=True)
class Span(MarkedSpans):
    """Objective ``span``.

    Attributes:
        density: fraction of a row's text tokens to hide, between 0 and 1; or a schedule by length: ascending pairs of
            tokens and density. Each pair applies to rows of up to that many tokens, the last also to longer ones.
        mean_span_lengths: mean tokens of a span; from several values, every row draws one with equal probabilities.
        sentinel_order: ``descending`` (T5) or ``ascending`` (BART-LS) ids.
        begin: True if source and target start with ``<bos>``; both always end with ``<eos>``.
        separator: token between two documents, ``<doc-sep>`` or ``<eos>``, or None.
        target_length: decoder positions, including sentinels, begin and end; None for as many as needed.
        fit: if a row may need more than ``target_length``: ``error`` before work starts; ``reduce`` the hidden tokens
            to the largest number that always fits; or ``window``: hide the full density in the longest stretch of the
            row whose target always fits, at a random place, and leave the text around it visible.
        sentinels: number of sentinels to reserve; None for as many as the worst row may need.
        global_attention: ``none``, ``bos``, ``separators`` or ``masked``.
        placement: ``t5``; ``rolled``, which rotates the row by a random offset, so that a span that wraps around
            becomes two (``random_roll`` of T5's code); or ``free``: uniform over all placements with a visible token
            between any two spans, so that a row may start or end with a hidden token.
    """

    density: float | Sequence[Sequence[float]] = 0.15
    mean_span_lengths: float | Sequence[float] = (3.0,)
    sentinel_order: str = "descending"
    begin: bool = False
    separator: str | None = DOCUMENT_SEPARATOR
    target_length: int | None = None
    fit: str = "error"
    sentinels: int | None = None
    global_attention: str = "none"
    placement: str = "t5"

    name: ClassVar[str] = "span"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Raffel et al. 2020, section 3.3.4 and the choice of section 3.7: 15 %, mean length 3. The published pipeline
        # joins documents without a separator (reduce_concat_tokens).
        "t5": {
            "density": 0.15,
            "mean_span_lengths": [3],
            "sentinel_order": "descending",
            "begin": False,
            "separator": None,
        },
        # Xiong et al. 2022, section 2.3 and table 3: 1,024 tokens of 16,384; the 8k ablation hides as many of 8,192.
        # Span lengths, fixed and mixed, are the published code's: the paper gives none.
        "bart_ls": _BART_LS,
        "bart_ls_8k": {**_BART_LS, "density": 1 / 8},
        "bart_ls_mixed": {**_BART_LS, "mean_span_lengths": [4, 8, 12]},
    }

    def __post_init__(self) -> None:
        wanted = "a number between 0 and 1, or pairs of tokens and such a number, tokens ascending"
        check(self, "density", is_share(self.density) or _is_schedule(self.density), wanted)
        means = check_numbers(self, "mean_span_lengths", least=1)
        check_choice(self, "placement", *PLACEMENTS)
        check_choice(self, "sentinel_order", "descending", "ascending")
        check_choice(self, "fit", *FITS)
        check_layout(self)
        check_whole(self, "target_length", least=self.layout.ends + 2, null=True)  # one sentinel with one token
        check_whole(self, "sentinels", least=1, null=True)
        density: Any = self.density
        schedule = _is_schedule(density) and tuple((int(tokens), float(share)) for tokens, share in density)
        normalize(self, density=schedule or float(density), mean_span_lengths=means)

    @property
    def options(self) -> dict[str, Any]:
        """All options as JSON values; ``placement`` only if it is not ``t5``, as docs/formats.md defines the key."""
        return {name: value for name, value in options_of(self).items() if (name, value) != ("placement", "t5")}

    @property
    def _means(self) -> np.ndarray:
        return np.asarray(self.mean_span_lengths, np.float64)

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check budgets against the longest row with the most parts, and number the special tokens."""
        self.layout.check(self.name, facts)
        # Counts grow with parts, and with tokens between bounds of the schedule: one row for each bound and mean.
        bounds = [] if isinstance(self.density, float) else [int(tokens) for tokens, _ in self.density]
        sizes = sorted({facts.max_tokens, *(bound for bound in bounds if bound < facts.max_tokens)})
        tokens = np.repeat(sizes, len(self._means))
        parts = np.full_like(tokens, facts.max_documents)
        _, noise, spans = self._counts(tokens, parts, np.tile(self._means, len(sizes)))
        pieces = self._pieces(noise, spans, parts)
        worst, markers = int((noise + pieces).argmax()), int(pieces.max())
        needed = int((noise + pieces)[worst]) + self.layout.ends
        row = f"a row of {tokens[worst]} tokens in {format_count(facts.max_documents, 'document')}"
        if self.target_length is not None and needed > self.target_length:
            raise FarspanError(
                f"span: option target_length is {self.target_length}, but {row}, {noise[worst]} of them hidden, may "
                f"need {needed}; raise target_length to {needed}, or give fit=reduce to hide fewer tokens, or "
                "fit=window to hide them in a part of the row"
            )
        if self.sentinels is not None and markers > self.sentinels:
            row = f"a row of {tokens[pieces.argmax()]} tokens in {format_count(facts.max_documents, 'document')}"
            raise FarspanError(
                f"span: option sentinels is {self.sentinels}, but {row} may need {markers}; raise sentinels to "
                f"{markers}, or give null to reserve as many as it takes"
            )
        return SpecialTokens.append(
            facts.vocab_size,
            facts.owned_tokens,
            names=self.layout.names,
            sentinels=markers if self.sentinels is None else self.sentinels,
            order="ascending" if self.sentinel_order == "ascending" else "descending",
        )

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds on source and target lengths over all draws, ``(n,)`` int64 each."""
        tokens, parts = batch.tokens.lengths.astype(np.int64), batch.document_starts.lengths.astype(np.int64)
        sources, targets = [], []
        for mean in self._means:
            _, noise, spans = self._counts(tokens, parts, np.full(len(tokens), mean))
            pieces = self._pieces(noise, spans, parts)
            sources.append(tokens - noise + pieces + self.layout.around(parts))
            targets.append(np.where(noise > 0, noise + pieces + self.layout.ends, 0))
        return np.max(sources, axis=0), np.max(targets, axis=0)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the spans of n rows, by (key, options, sequence id, lengths) of the row."""
        return draw_masks(batch, self.draws(batch.ids(), batch.tokens.lengths, batch.document_starts.lengths, key))

    def draws(self, ids: Sequence[bytes], tokens: np.ndarray, parts: np.ndarray, key: bytes) -> SpanDraws:
        """Return the numbers that ``mask`` draws rows by: n ids, and ``(n,)`` numbers of tokens and documents."""
        means = self._means
        if len(means) > 1:
            # A digest is uniform in 64 bits, so the remainder is uniform to one part in 2**62.
            means = means[id_keys(key + b"mean", ids)[:, 0] % np.uint64(len(means))]
        sizes, noise, spans = self._counts(tokens, parts, means)
        firsts = np.zeros(len(tokens), np.int64)
        if (sizes < tokens).any():
            words = id_keys(key + b"window", ids)[:, 0]
            firsts = (words % (tokens - sizes + 1).astype(np.uint64)).astype(np.int64)
        placements = np.full(len(tokens), PLACEMENTS.index(self.placement))
        around, ends = self.layout.around(parts), np.full(len(tokens), self.layout.ends)
        return SpanDraws(id_keys(key, ids), sizes, noise, spans, firsts, placements, noise, around, ends)

    def _counts(
        self, tokens: np.ndarray, parts: np.ndarray, means: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Count the tokens in the window, those hidden, and spans before they are cut, ``(n,)`` int64 each."""
        densities = self._densities(tokens)
        size, noise = np.asarray(tokens, np.int64), count_hidden_tokens(tokens, densities)

        def spans(size: np.ndarray, noise: np.ndarray) -> np.ndarray:
            return count_spans(size, noise, means, self.placement == "free")

        def fits(size: np.ndarray, noise: np.ndarray) -> np.ndarray:
            pieces = self._pieces(noise, spans(size, noise), parts)
            return noise + pieces + self.layout.ends <= (self.target_length or 0)

        if self.target_length is not None and self.fit == "window":
            size = _largest(size, lambda size: fits(size, count_hidden_tokens(size, densities)))
            noise = count_hidden_tokens(size, densities)
        elif self.target_length is not None and self.fit == "reduce":
            noise = _largest(noise, lambda noise: fits(size, noise))
        return size, noise, spans(size, noise)

    def _pieces(self, noise: np.ndarray, spans: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """Return the most spans after every document boundary, and the end of a rotated row, have cut one."""
        return np.minimum(noise, spans + np.maximum(parts - 1, 0) + (self.placement == "rolled"))

    def _densities(self, tokens: np.ndarray) -> np.ndarray | float:
        if isinstance(self.density, float):
            return self.density
        bounds, densities = np.array(self.density).T
        return densities[np.searchsorted(bounds, tokens).clip(max=len(bounds) - 1)]


def _largest(most: np.ndarray, fits: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Find the largest numbers from 0 to ``most``, ``(n,)`` int64, that fit; whatever is smaller fits too."""
    low, high = np.zeros_like(most), most
    while (low < high).any():
        middle = (low + high + 1) // 2
        fit = fits(middle)
        low, high = np.where(fit, middle, low), np.where(fit, high, middle - 1)
    return low


def _is_schedule(value: object) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 and is_share(pair[1]) for pair in value):
        return False
    bounds = [pair[0] for pair in value]
    whole = all(is_number(bound) and bound == int(bound) and bound >= 1 for bound in bounds)
    return whole and bounds == sorted(set(bounds))
