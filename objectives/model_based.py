"""Model-based denoising (BART-LS): hides the spans that a masked language model finds hardest.

More spans than needed are drawn as in span corruption, and all their tokens are hidden from an encoder-only model. The
spans with the largest losses stay hidden (Xiong et al. 2022, arXiv:2209.10052, section 2.3, and the published code);
the others become visible. All candidates are stored with their losses, so that stored masks can be read with other
budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.schemas.sequences import SequenceBatch
from objectives.api.examples import IGNORED, Examples
from objectives.api.masks import MaskBatch
from objectives.api.options import (
    check,
    check_choice,
    check_layout,
    check_numbers,
    check_whole,
    equipped,
    is_share,
    normalize,
)
from objectives.api.protocol import CorpusFacts, Scorer, Tools
from objectives.api.special_tokens import (
    BEGIN,
    DOCUMENT_BEGIN,
    DOCUMENT_END,
    DOCUMENT_SEPARATOR,
    END,
    MASK,
    SpecialTokens,
)
from objectives.draws.compositions import count_hidden_tokens, count_spans
from objectives.draws.hardest_spans import (
    AGGREGATIONS,
    Candidates,
    hide_hardest,
    rank_spans,
    span_losses,
    whole_candidates,
)
from objectives.rendering.layout import Layout
from objectives.rendering.marked import MarkedSpans
from objectives.rendering.render import render_labels, rendered_lengths
from objectives.span import Span

_UNBOUNDED = np.iinfo(np.int64).max


@dataclass(frozen=True)
class ModelBased(MarkedSpans):
    """Objective ``model_based``; it needs a scorer.

    A row's hardest candidates are hidden, one after the other, until one of its budgets is used up: tokens
    (``density``), spans (``span_share``, ``sentinels``) or decoder positions (``target_length``). If a budget ends
    within a span, its first tokens are hidden. Spans of equal loss are taken from left to right.

    Attributes:
        density: fraction of a row's text tokens to hide, exactly, as in ``span``; None for no such budget.
        span_share: fraction of a row's candidates to hide (BART-LS: a fifth), rounded down, at least one; None for no
            such budget.
        candidate_density: fraction of the tokens in candidates, at least ``density``.
        mean_span_lengths: mean tokens of a candidate; from several values, every row draws one with equal
            probabilities.
        aggregation: a span's loss is the ``mean``, ``sum`` or ``max`` of its tokens' cross-entropies.
        sentinel_order: ``descending`` (T5) or ``ascending`` (BART-LS) ids.
        begin: True if source and target start with ``<bos>``; both always end with ``<eos>``.
        separator: token between two documents, ``<doc-sep>`` or ``<eos>``, or None.
        target_length: decoder positions, including sentinels, begin and end; None for as many as needed.
        sentinels: number of sentinels to reserve; None for as many as the worst row may need.
        global_attention: ``none``, ``bos``, ``separators`` or ``masked``.
    """

    density: float | None = 1 / 16
    span_share: float | None = None
    candidate_density: float = 5 / 16
    mean_span_lengths: float | Sequence[float] = (5.0,)
    aggregation: str = "mean"
    sentinel_order: str = "descending"
    begin: bool = False
    separator: str | None = DOCUMENT_SEPARATOR
    target_length: int | None = None
    sentinels: int | None = None
    global_attention: str = "none"
    _tools: Tools | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "model_based"
    adjustable: ClassVar[tuple[str, ...]] = ("density", "span_share", "target_length", "sentinels")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # Xiong et al. 2022, section 2.3: 5,120 of 16,384 tokens are drawn, and a fifth of their spans kept. The mean
        # lengths, and 1,024 target positions, are those of the published code's sweep of this objective.
        "bart_ls": {
            "density": None,
            "span_share": 0.2,
            "candidate_density": 5 / 16,
            "mean_span_lengths": [4, 8, 12],
            "sentinel_order": "ascending",
            "begin": True,
            "separator": None,
            "target_length": 1024,
        },
    }

    def __post_init__(self) -> None:
        hidden, share, drawn = self.density, self.span_share, self.candidate_density
        check(self, "density", hidden is None or is_share(hidden), "a number between 0 and 1, or null")
        check(self, "span_share", share is None or share == 1 or is_share(share), "a number above 0 up to 1, or null")
        check(self, "candidate_density", is_share(drawn), "a number between 0 and 1")
        at_most = f"at most candidate_density, {drawn}, or raise that"
        check(self, "density", hidden is None or hidden <= drawn, at_most)
        means = check_numbers(self, "mean_span_lengths", least=1)
        check_choice(self, "aggregation", *AGGREGATIONS)
        check_choice(self, "sentinel_order", "descending", "ascending")
        check_whole(self, "target_length", least=self.layout.ends + 2, null=True)  # one sentinel with one token
        check_whole(self, "sentinels", least=1, null=True)
        check_layout(self)
        shares = {"density": hidden, "span_share": share, "candidate_density": drawn}
        numbers = {option: value if value is None else float(value) for option, value in shares.items()}
        normalize(self, **numbers, mean_span_lengths=means)

    @property
    def tools(self) -> dict[str, str]:
        """Fingerprint of the scorer, if there is one."""
        return {} if self._tools is None else {"scorer": self._scorer.fingerprint}

    @property
    def _scorer(self) -> Scorer:
        if self._tools is None or self._tools.scorer is None:
            raise FarspanError(
                f"{self.name}: needs a masked language model that scores spans; give --scorer FOLDER, in a recipe "
                "data.objective.scorer, or in Python objective.with_tools(Tools(tokenizer, scorer=load_scorer(FOLDER)))"
            )
        return self._tools.scorer

    def with_tools(self, tools: Tools) -> ModelBased:
        """Return a copy with the scorer."""
        equipped_self = equipped(self, tools)
        scorer = equipped_self._scorer
        if scorer.tokenizer_fingerprint != tools.tokenizer.fingerprint:
            raise FarspanError(
                f"{self.name}: the scorer's tokenizer has fingerprint {scorer.tokenizer_fingerprint}, the corpus's "
                f"{tools.tokenizer.fingerprint}; tokenise with the scorer's tokenizer, or give a scorer for these ids"
            )
        if MASK not in scorer.special.ids:
            raise FarspanError(f"{self.name}: the scorer has no {MASK} token; give a masked language model")
        return equipped_self

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        """Check the room for the tokens around the text, and number the special tokens."""
        self.layout.check(self.name, facts)
        # One row for each mean; all counts grow with tokens and parts.
        means = np.asarray(self.mean_span_lengths)
        tokens = np.full(len(means), facts.max_tokens)
        drawn = count_hidden_tokens(tokens, self.candidate_density)
        candidates = np.minimum(drawn, count_spans(tokens, drawn, means) + max(facts.max_documents - 1, 0))
        hidden, spans, positions = self._budgets(tokens, candidates)
        # A budget holds the most spans if each has one token.
        most = np.minimum.reduce([candidates, hidden, spans, positions // 2])
        return SpecialTokens.append(
            facts.vocab_size,
            facts.owned_tokens,
            names=self.layout.names,
            sentinels=int(most.max()) if self.sentinels is None else self.sentinels,
            order="ascending" if self.sentinel_order == "ascending" else "descending",
        )

    def longest(self, batch: SequenceBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds on source and target lengths over all draws and losses, ``(n,)`` int64 each."""
        tokens, parts = batch.tokens.lengths.astype(np.int64), batch.document_starts.lengths.astype(np.int64)
        drawn, targets = count_hidden_tokens(tokens, self.candidate_density), []
        for mean in np.asarray(self.mean_span_lengths):
            candidates = np.minimum(drawn, count_spans(tokens, drawn, mean) + np.maximum(parts - 1, 0))
            hidden, spans, positions = self._budgets(tokens, candidates)
            used = np.minimum(hidden + np.minimum(hidden, spans), positions)
            targets.append(np.where(hidden > 0, used + self.layout.ends, 0))
        # A sentinel replaces at least one token, so no source is longer than its text.
        return tokens + self.layout.around(parts), np.max(targets, axis=0)

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the candidates of n rows, score them, and hide the hardest.

        The scorer's input has those special tokens around and between documents that its vocabulary has.
        """
        scorer = self._scorer
        candidates = self.candidates(batch, key)
        shown = self.show(batch, candidates, scorer.special)
        assert shown.labels is not None
        losses = scorer.losses(shown.source_ids, shown.source_lengths, shown.labels)
        return self.choose(batch, candidates, losses[shown.labels != IGNORED])

    def candidates(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """Draw the candidate spans of n rows; all are flagged as hidden."""
        return Span(density=self.candidate_density, mean_span_lengths=self.mean_span_lengths).mask(batch, key)

    def show(
        self, batch: SequenceBatch, candidates: MaskBatch, special: SpecialTokens, *, segment_ids: bool = False
    ) -> Examples:
        """Render input and labels for a masked language model with tokens ``special``; all candidates have labels."""
        return render_labels(batch, candidates, special, _known(special), mask=MASK, segment_ids=segment_ids)

    def choose(self, batch: SequenceBatch, candidates: MaskBatch, losses: np.ndarray) -> MaskBatch:
        """Hide the hardest candidates.

        ``losses``: ``(tokens,)`` float, losses of the tokens of all candidates in text order, row by row.
        """
        # Tokens are in text order, and so in the order of the spans.
        scores = span_losses(losses, candidates.span_lengths, self.aggregation)
        if not np.isfinite(scores.values).all():
            row = int(np.searchsorted(scores.offsets, np.flatnonzero(~np.isfinite(scores.values))[0], "right")) - 1
            raise FarspanError(
                f"{self.name}: the scorer's losses of sequence {batch.sequence_id(row).hex()} are not finite; score in "
                "float32, or give another scorer"
            )
        scored = Candidates(candidates.span_starts, candidates.span_lengths, scores, rank_spans(scores))
        return self._hidden(batch, scored)

    def select(self, batch: SequenceBatch, masks: MaskBatch) -> MaskBatch:
        """Select among stored candidates with these budgets; equals ``mask`` with the same losses."""
        if masks.span_scores is None or masks.span_ranks is None:
            raise FarspanError(f"{self.name}: the stored masks have no scores and ranks; run `farspan mask` again")
        return self._hidden(batch, whole_candidates(masks))

    def _budgets(self, tokens: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the budgets of rows with the given numbers of tokens and candidates, ``(n,)`` int64 each.

        Returns budgets of tokens, of spans, and of positions without begin and end, ``(n,)`` int64 each.
        """
        hidden = count_hidden_tokens(tokens, self.candidate_density if self.density is None else self.density)
        spans = candidates
        if self.span_share is not None:
            # Rounding may put an exact share slightly below the integer: 0.29 * 100 is 28.999999999999996.
            spans = np.maximum(np.floor(candidates * self.span_share + 1e-9), 1).astype(np.int64)
        if self.sentinels is not None:
            spans = np.minimum(spans, self.sentinels)
        positions = _UNBOUNDED if self.target_length is None else self.target_length - self.layout.ends
        return hidden, spans, np.full(len(tokens), positions)

    def _hidden(self, batch: SequenceBatch, candidates: Candidates) -> MaskBatch:
        """Hide the hardest candidates within the budgets, and measure the rendered rows."""
        budgets = self._budgets(batch.tokens.lengths, candidates.lengths.lengths)
        masks = hide_hardest(batch.sequence_ids, candidates, *budgets)
        source, target = rendered_lengths(batch, masks, self.layout, sentinels=True)
        return replace(masks, source_lengths=source, target_lengths=target)


def _known(special: SpecialTokens) -> Layout:
    """Return the layout of those tokens that a model has."""
    begin, end, before, between, after = (
        name if name in special.ids else None for name in (BEGIN, END, DOCUMENT_BEGIN, DOCUMENT_SEPARATOR, DOCUMENT_END)
    )
    return Layout(begin, end, before, between, after)
