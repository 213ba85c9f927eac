"""Objective ``lead_in``: the first tokens of every document leave the source and the decoder says them.

It stands for an objective that someone else publishes: options, a special token, checks and a rendering of its own,
found through the entry point in ``pyproject.toml`` and through nothing else.

    source: <gap> rest of document <gap> rest of document <eos>
    target: lead <gap> lead <eos>
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from corpora.errors import FarspanError
from corpora.ragged import Ragged
from corpora.sequences import SequenceBatch
from objectives.base import CorpusFacts
from objectives.examples import Examples
from objectives.masks import IN_SOURCE, IN_TARGET, MaskBatch
from objectives.special_tokens import END, PAD, SpecialTokens

GAP = "<gap>"


@dataclass(frozen=True)
class LeadIn:
    """Attributes:
    lead: tokens to hide of each document; a shorter one is hidden as a whole.
    """

    lead: int = 8

    name: ClassVar[str] = "lead_in"
    global_attention: ClassVar[str] = "none"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"short": {"lead": 2}}

    def __post_init__(self) -> None:
        if not isinstance(self.lead, int) or self.lead < 1:
            raise FarspanError(f"lead_in: option lead is {self.lead!r}; give a whole number from 1 up")

    @property
    def options(self) -> dict[str, Any]:
        return asdict(self)

    def validate(self, facts: CorpusFacts) -> SpecialTokens:
        if self.lead >= facts.max_tokens:
            raise FarspanError(
                f"lead_in: option lead is {self.lead}, but no row is longer than {facts.max_tokens} tokens; "
                f"give at most {facts.max_tokens - 1}"
            )
        return SpecialTokens.append(facts.vocab_size, facts.owned_tokens, [GAP])

    def mask(self, batch: SequenceBatch, key: bytes) -> MaskBatch:
        """No draws: a row's documents say it all."""
        starts, sizes = [], []
        for row in range(len(batch)):
            borders = np.append(batch.document_starts[row], batch.tokens.lengths[row])
            full = np.diff(borders) > 0
            starts.append(borders[:-1][full])
            sizes.append(np.minimum(np.diff(borders)[full], self.lead))
        hidden = np.array([size.sum() for size in sizes], np.int64)
        count = np.array([len(size) for size in sizes], np.int64)
        return MaskBatch(
            batch.sequence_ids,
            Ragged.from_rows(starts, np.int32),
            Ragged.from_rows(sizes, np.int32),
            Ragged.from_lengths(np.full(count.sum(), IN_SOURCE | IN_TARGET, np.uint8), count),
            source_lengths=(batch.tokens.lengths - hidden + count + 1).astype(np.int32),
            target_lengths=(hidden + np.maximum(count, 1)).astype(np.int32),
        )

    def render(self, batch: SequenceBatch, masks: MaskBatch, special: SpecialTokens) -> Examples:
        sources, targets = [], []
        for row in range(len(batch)):
            text = batch.tokens[row].astype(np.int32)
            starts, sizes = masks.span_starts[row], masks.span_lengths[row]
            leads = [text[start : start + size] for start, size in zip(starts, sizes, strict=True)]
            hidden = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, sizes, strict=True)] or [[]])
            # Rest of the text, with a gap where each lead stood; insertion counts positions of the rest.
            stops = starts - np.cumsum(sizes) + sizes
            rest = np.insert(np.delete(text, hidden.astype(np.int64)), stops, special[GAP])
            sources.append(np.append(rest, special[END]))
            joined = [piece for lead in leads for piece in (lead, [special[GAP]])][:-1]
            targets.append(np.concatenate([*joined, [special[END]]]).astype(np.int32))
        return Examples(masks.sequence_ids, *_padded(sources, special[PAD]), *_padded(targets, special[PAD]))

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


def _padded(rows: list[np.ndarray], pad: int) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows], np.int32)
    ids = np.full((len(rows), lengths.max(initial=0)), pad, np.int32)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    return ids, lengths
