"""``Trial``: an objective and the rows on which its laws (``objectives.api.laws``) are checked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.packing.assemble import assemble
from corpora.printing import format_count
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.examples import Examples
from objectives.api.masks import MaskBatch
from objectives.api.protocol import CorpusFacts, Objective, mask_key
from objectives.api.special_tokens import SpecialTokens


@dataclass(frozen=True)
class Trial:
    """An objective and the rows on which to check it.

    Attributes:
        make: builds the objective with its tools, from the options to check (None) or from other ones.
        batch: at least one row.
        facts: facts of a corpus that may contain these rows.
        seed: seed of the masks.
        accepted: names of the options that can be given.
    """

    make: Callable[[Mapping[str, Any] | None], Objective]
    batch: SequenceBatch
    facts: CorpusFacts
    seed: int = 0
    accepted: Sequence[str] = ()

    @cached_property
    def objective(self) -> Objective:
        return self.make(None)

    @cached_property
    def special(self) -> SpecialTokens:
        return self.objective.validate(self.facts)

    @cached_property
    def key(self) -> bytes:
        return mask_key(self.seed, self.objective)

    @cached_property
    def masks(self) -> MaskBatch:
        return self.objective.mask(self.copy(), self.key)

    @cached_property
    def examples(self) -> Examples:
        return self.objective.render(self.copy(), self.masks, self.special)

    def copy(self) -> SequenceBatch:
        """Copy the rows, because an objective might write to them."""
        return self.batch.take(np.arange(len(self.batch)))

    def row(self, number: int) -> str:
        """Describe a row of the batch for error messages."""
        size, parts = self.batch.tokens.lengths[number], self.batch.document_starts.lengths[number]
        described = f"{format_count(size, 'token')} in {format_count(parts, 'document')}"
        return f"row {number} ({described}, sequence {self.batch.sequence_id(number).hex()})"


def digest(trial: Trial) -> str:
    """Hash the masks of all rows: hex sha256, equal in every process."""
    return hashlib.sha256(repr(mask_rows(trial.masks)).encode()).hexdigest()


def mask_rows(masks: MaskBatch) -> list[tuple[Any, ...]]:
    """Convert every row to a tuple of plain comparable values."""
    return [tuple(row.values()) for row in masks.to_arrow().to_pylist()]


def odd_rows(batch: SequenceBatch) -> Iterator[tuple[str, SequenceBatch]]:
    """Yield unusual rows of one document, made from the longest row's text."""
    longest = batch.take([int(batch.tokens.lengths.argmax())])
    tokens = longest.tokens[0]
    yield "a row without tokens", one_document(longest, tokens[:0], [])
    yield "a row of one token", one_document(longest, tokens[:1], [0])
    yield "a row of one sentence", one_document(longest, tokens[:24], [0])
    yield "a row of one repeated token", one_document(longest, np.repeat(tokens[:1], len(tokens)), [0])
    yield "a row of sentences of one token", one_document(longest, tokens, np.arange(len(tokens)))
    yield "a batch without rows", batch.take(np.arange(0))


def one_document(row: SequenceBatch, tokens: np.ndarray, sentences: np.ndarray | list[int]) -> SequenceBatch:
    """Replace the text of the only row by one document with the given sentence starts."""
    made = assemble(
        pa.array(row.document_ids[0].as_py()[:1]),
        Ragged.from_rows([tokens], tokens.dtype),
        np.asarray(sentences, np.int64),
        offsets=np.zeros(1, np.int64),
        lengths=np.array([len(tokens)]),
        row_offsets=np.array([0, 1]),
        cluster_ids=row.cluster_ids,
    )
    return replace(made, sequence_ids=row.sequence_ids)
