"""Objective ``lead_in``, in which the decoder says the first tokens of every document, and task ``lead_question``.

They stand for what someone else publishes, found through the entry points in ``pyproject.toml`` and through nothing
else. The objective uses every hook there is: options and presets, checks before work starts, a special token, a tool,
scores, labels and ranks, global positions of its own, a rendering and its inverse, and an option that can be changed
on stored masks.

    source: <gap> rest of document <gap> rest of document <eos>
    target: lead <gap> lead <eos>
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from corpora.errors import FarspanError
from corpora.schemas.pairs import PairBatch
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.api.options import check_flag, check_whole, equipped, options_of
from objectives.api.protocol import CorpusFacts, Tools
from objectives.api.special_tokens import END, PAD, SpecialTokens
from objectives.rendering.layout import Layout
from objectives.tasks.protocol import NO_TARGET, Cut, PairFacts, Rendered

GAP = "<gap>"


@dataclass(frozen=True)
class LeadIn:
    """The first tokens of every document, each behind a ``<gap>`` that attends globally.

    Attributes:
        lead: tokens to hide of each document; a shorter one is hidden as a whole.
        whole_words: end where a word ends, at or before ``lead``; needs a tokenizer.
    """

    lead: int = 8
    whole_words: bool = False
    _tools: Tools | None = field(default=None, init=False, repr=False, compare=False)

    name: ClassVar[str] = "lead_in"
    global_attention: ClassVar[str] = "positions"
    adjustable: ClassVar[tuple[str, ...]] = ("lead",)
    presets: ClassVar[dict[str, dict[str, Any]]] = {"short": {"lead": 2}, "words": {"whole_words": True}}

    def __post_init__(self) -> None:
        check_whole(self, "lead", 1)
        check_flag(self, "whole_words")

    @property
    def options(self) -> dict[str, Any]:
        return options_of(self)

    @property
    def tools(self) -> dict[str, str]:
        return {"tokenizer": self._tools.tokenizer.fingerprint} if self._tools and self.whole_words else {}

    def with_tools(self, tools: Tools) -> LeadIn:
        return equipped(self, tools)

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        # A gap takes the place of at least one token, so only the end needs room.
        Layout(begin=None).check(self.name, facts)
        if self.lead >= facts.max_tokens:
            raise FarspanError(
                f"lead_in: option lead is {self.lead}, but no row is longer than {facts.max_tokens} tokens; "
                f"give at most {facts.max_tokens - 1}"
            )
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, [GAP])

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """No draws: a row's documents say it all."""
        rows = []
        for row in range(len(batch)):
            starts, sizes = _parts(batch, row)
            leads = np.minimum(sizes, self.lead)
            if self.whole_words:
                leads = np.array(
                    [self._whole(batch.tokens[row][s : s + n]) for s, n in zip(starts, leads, strict=True)]
                )
            rows.append(leads)
        return self._masks(batch, rows)

    def select(self, batch: SequenceBatch, masks: MaskBatch) -> MaskBatch:
        """Shorter leads of stored masks."""
        return self._masks(batch, [np.minimum(masks.span_lengths[row], self.lead) for row in range(len(masks))])

    def render(self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens) -> Examples:
        sources, targets = [], []
        for row in range(len(batch)):
            text = batch.tokens[row].astype(np.int32)
            starts, sizes = masks.span_starts[row], masks.span_lengths[row]
            leads = [text[start : start + size] for start, size in zip(starts, sizes, strict=True)]
            hidden = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, sizes, strict=True)] or [np.empty(0)])
            # Rest of the text, with a gap where each lead stood; insertion counts positions of the rest.
            stops = starts - np.cumsum(sizes) + sizes
            rest = np.insert(np.delete(text, hidden.astype(np.int64)), stops, special[GAP])
            sources.append(np.append(rest, special[END]))
            joined = [piece for lead in leads for piece in (lead, [special[GAP]])][:-1]
            targets.append(np.concatenate([*joined, [special[END]]]).astype(np.int32))
        source, lengths = _padded(sources, special[PAD])
        attending = np.zeros(source.shape, bool)
        for row in range(len(batch)):
            assert masks.global_positions is not None
            attending[row, masks.global_positions[row]] = True
        target = _padded(targets, special[PAD])
        return Examples(masks.sequence_ids, source, lengths, *target, global_positions=attending)

    def reconstruct(self, examples: Examples, masks: MaskBatch, special: SpecialTokens) -> Ragged:
        rows = []
        for row in range(len(examples)):
            source = examples.source_ids[row, : examples.source_lengths[row] - 1]
            target = examples.target_ids[row, : examples.target_lengths[row] - 1]
            rests = np.split(source, np.flatnonzero(source == special[GAP]))[1:]
            leads = np.split(target, np.flatnonzero(target == special[GAP]))
            leads = [leads[0], *(lead[1:] for lead in leads[1:])]
            pairs = zip(leads, rests, strict=False)
            rows.append(np.concatenate([source[:0], *(piece for lead, rest in pairs for piece in (lead, rest[1:]))]))
        return Ragged.from_rows(rows, np.int32)

    def _whole(self, tokens: np.ndarray) -> int:
        """Number of a document's first tokens that are whole words; all where its first word is longer."""
        if self._tools is None:
            raise FarspanError("lead_in: option whole_words needs a tokenizer; give with_tools(Tools(tokenizer))")
        text, starts = self._tools.tokenizer.decode_with_offsets(tokens)
        begins = [place for place, start in enumerate(starts.tolist()) if place and text[start : start + 1].isspace()]
        return begins[-1] if begins else len(tokens)

    def _masks(self, batch: SequenceBatch, sizes: list[np.ndarray]) -> MaskBatch:
        """Masks of the first ``sizes[i][j]`` tokens of the j-th document of row i."""
        starts = [_parts(batch, row)[0] for row in range(len(batch))]
        count = np.array([len(size) for size in sizes], np.int64)
        hidden = np.array([size.sum() for size in sizes], np.int64)
        shares = [size / _parts(batch, row)[1] for row, size in enumerate(sizes)]
        ranks = [np.argsort(np.argsort(-share, kind="stable")) for share in shares]
        gaps = [
            start - np.cumsum(size) + size + np.arange(len(size)) for start, size in zip(starts, sizes, strict=True)
        ]
        names = [
            np.array(batch.document_ids[row].as_py(), object)[np.isin(batch.document_starts[row], starts[row])]
            for row in range(len(batch))
        ]
        return MaskBatch(
            batch.sequence_ids,
            Ragged.from_rows(starts, np.int32),
            Ragged.from_rows(sizes, np.int32),
            Ragged.from_lengths(np.full(count.sum(), IN_SOURCE | IN_TARGET, np.uint8), count),
            source_lengths=(batch.tokens.lengths - hidden + count + 1).astype(np.int32),
            target_lengths=(hidden + np.maximum(count, 1)).astype(np.int32),
            span_scores=Ragged.from_rows(shares, np.float32),
            span_ranks=Ragged.from_rows(ranks, np.int32),
            span_labels=pa.array([row.tolist() for row in names], pa.list_(pa.string())),
            global_positions=Ragged.from_rows(gaps, np.int32),
        )


@dataclass(frozen=True)
class LeadQuestion:
    """Task ``lead_question``: the first tokens of each document, then the query, behind a ``<gap>``.

        source: lead lead <gap> query <eos>
        target: answer <eos>

    Attributes:
        lead: tokens to show of each document.
    """

    lead: int = 8

    name: ClassVar[str] = "lead_question"
    global_attention: ClassVar[str] = "none"
    samples: ClassVar[str] = "first"
    shares_sources: ClassVar[bool] = False
    presets: ClassVar[dict[str, dict[str, Any]]] = {"brief": {"lead": 2}}

    def __post_init__(self) -> None:
        check_whole(self, "lead", 1)

    @property
    def options(self) -> dict[str, Any]:
        return options_of(self)

    def validate(self, facts: PairFacts) -> SpecialTokens:
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, [GAP])

    def render(self, batch: PairBatch, chosen: np.ndarray, special: SpecialTokens) -> Rendered:
        sources, targets, cut = [], [], []
        for row, target in enumerate(chosen.tolist()):
            texts = [batch.document_tokens[document] for document in batch.pair_documents[row]]
            leads = [text[: self.lead] for text in texts]
            cut.append(sum(map(len, texts)) - sum(map(len, leads)))
            sources.append(
                np.concatenate([*leads, [special[GAP]], batch.queries[row], [special[END]]]).astype(np.int32)
            )
            answer = [] if target == NO_TARGET else [batch.targets[batch.target_offsets[row] + target], [special[END]]]
            targets.append(np.concatenate([np.empty(0), *answer]).astype(np.int32))
        pad, nothing = special[PAD], np.zeros(len(batch), np.int64)
        examples = Examples(batch.keys, *_padded(sources, pad), *_padded(targets, pad))
        return Rendered(examples, Cut(nothing, np.array(cut), nothing))


def _parts(batch: SequenceBatch, row: int) -> tuple[np.ndarray, np.ndarray]:
    """Beginnings and sizes of the documents in a row that have text."""
    borders = np.append(batch.document_starts[row], batch.tokens.lengths[row]).astype(np.int64)
    full = np.diff(borders) > 0
    return borders[:-1][full], np.diff(borders)[full]


def _padded(rows: list[np.ndarray], pad: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows], np.int32)
    ids = np.full((len(rows), lengths.max(initial=0)), pad, np.int32)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    return ids, lengths
