"""``MaskBatch``, the hidden spans of a batch of corpus rows as typed arrays (the columns of ``farspan.masks``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from corpora.schemas.sequences import bytes_array, fixed_bytes
from corpora.storage.arrow_views import numbers
from corpora.storage.gather import Gatherable, gather
from corpora.storage.ragged import Ragged, concatenate_columns

IN_SOURCE = 1  # bit 0: a marker (sentinel or mask token) is in the source
VISIBLE = 2  # bit 1: the text stays visible in the source
IN_TARGET = 4  # bit 2: the text is in the target
REPLACED = 8  # bit 3: the text is replaced by ``replacements``
CANDIDATE = 0  # no bit: scored, but not used

_LISTS = {
    "span_starts": pa.int32(),
    "span_lengths": pa.int32(),
    "span_flags": pa.uint8(),
    "span_scores": pa.float32(),
    "span_ranks": pa.int32(),
    "span_labels": pa.string(),
    "replacements": pa.int32(),
    "global_positions": pa.int32(),
}
_REQUIRED = ("span_starts", "span_lengths", "span_flags")

MASK_SCHEMA = pa.schema(
    [pa.field("sequence_id", pa.binary(16), nullable=False)]
    + [pa.field(name, pa.list_(kind), nullable=name not in _REQUIRED) for name, kind in _LISTS.items()]
    + [pa.field(name, pa.int32(), nullable=False) for name in ("source_length", "target_length")]
)
"""The columns of ``farspan.masks`` (docs/formats.md); columns that an objective does not use are all null."""

MIXTURE_SCHEMA = MASK_SCHEMA.append(pa.field("component", pa.string(), nullable=False))
"""The columns for an objective that has ``components``."""

MASK_COLUMNS = {
    "sequence_id": "that of the corpus row",
    "span_starts": "first token of each span in the corpus row's `tokens`",
    "span_lengths": "number of tokens of each span",
    "span_flags": "sum of 1 marker in source, 2 text visible there, 4 text in target, 8 text replaced in source",
    "span_scores": "score by which each span was chosen, or null",
    "span_ranks": "order of selection from 0, or null",
    "span_labels": "name of each span, such as an entity, or null",
    "replacements": "ids that replace the text of spans with flag 8, or null",
    "source_length": "positions of the rendered source",
    "target_length": "positions of the rendered target",
    "global_positions": "source positions with global attention, or null",
    "component": "component of the mixture that masks the row; only in mask sets of mixtures",
}
"""Meaning of the columns of ``MASK_SCHEMA``, for cards."""


def mask_schema(objective: object) -> pa.Schema:
    """Return the columns of the masks of ``objective``."""
    return MIXTURE_SCHEMA if hasattr(objective, "components") else MASK_SCHEMA


@dataclass(frozen=True, slots=True)
class MaskBatch:
    """``n`` mask rows; row i belongs to row i of a ``SequenceBatch``, and positions refer to its stored tokens.

    Attributes:
        sequence_ids: ``(n, 16)`` uint8, equal to the corpus rows'.
        span_starts, span_lengths: n rows of int32 each, spans ascending and disjoint, in tokens.
        span_flags: n rows of uint8, bits ``IN_SOURCE | VISIBLE | IN_TARGET | REPLACED``, or ``CANDIDATE``.
        source_lengths, target_lengths: ``(n,)`` int32, lengths after rendering.
        span_scores, span_ranks: n rows of float32 and int32, or None.
        span_labels: Arrow ``list<string>`` of length n, or None.
        replacements: n rows of int32, concatenated ids for ``REPLACED`` spans, or None.
        global_positions: n rows of int32, or None if a rule of the objective determines them.
        components: Arrow ``string`` of length n, the component of a mixture that made each row; None for others.
    """

    sequence_ids: np.ndarray
    span_starts: Ragged
    span_lengths: Ragged
    span_flags: Ragged
    source_lengths: np.ndarray
    target_lengths: np.ndarray
    span_scores: Ragged | None = None
    span_ranks: Ragged | None = None
    span_labels: pa.Array | None = None
    replacements: Ragged | None = None
    global_positions: Ragged | None = None
    components: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.sequence_ids)

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> MaskBatch:
        """View a record batch with ``MASK_SCHEMA`` or ``MIXTURE_SCHEMA``, without copying."""

        def column(name: str) -> Any:
            array = batch.column(name)
            if array.null_count == len(array) and name not in _REQUIRED:
                return None
            return array if name == "span_labels" else Ragged.from_arrow(array)

        return cls(
            sequence_ids=fixed_bytes(batch.column("sequence_id")),
            source_lengths=numbers(batch.column("source_length")),
            target_lengths=numbers(batch.column("target_length")),
            **{name: column(name) for name in _LISTS},
            components=batch.column("component") if "component" in batch.schema.names else None,
        )

    def to_arrow(self) -> pa.RecordBatch:
        """Convert to a record batch with ``MASK_SCHEMA``, or with ``MIXTURE_SCHEMA`` if there are components."""
        columns = {
            "sequence_id": bytes_array(self.sequence_ids),
            "source_length": pa.array(self.source_lengths, pa.int32()),
            "target_length": pa.array(self.target_lengths, pa.int32()),
        }
        for name, kind in _LISTS.items():
            values = getattr(self, name)
            if values is None:
                columns[name] = pa.nulls(len(self), pa.list_(kind))
            else:
                columns[name] = values if isinstance(values, pa.Array) else values.to_arrow(pa.list_(kind))
        schema = MASK_SCHEMA if self.components is None else MIXTURE_SCHEMA
        columns["component"] = self.components
        return pa.record_batch([columns[field.name] for field in schema], schema=schema)

    @classmethod
    def concatenate(cls, batches: Sequence[MaskBatch]) -> MaskBatch:
        """Concatenate the rows of all ``batches``, at least one, all made by one objective."""
        return cls(*(concatenate_columns([getattr(batch, f.name) for batch in batches]) for f in fields(cls)))

    def take(self, rows: np.ndarray | Sequence[int]) -> MaskBatch:
        """Copy the given rows, in the given order."""
        return gather([Gatherable.of(self)], np.zeros(len(rows), np.int64), np.asarray(rows, np.int64))


TOTALS = ("sequences", "unmasked", "spans", "candidates", "hidden_tokens", "max_source_length", "max_target_length")


def add_mask_totals(totals: dict[str, int], masks: MaskBatch) -> None:
    """Add the counts of a batch to ``totals``, which has all ``TOTALS``."""
    flags, sizes = masks.span_flags.compact(), masks.span_lengths.compact().values
    in_target = flags.values & IN_TARGET != 0
    rows = np.repeat(np.arange(len(masks)), flags.lengths)  # (spans,)
    candidates = int((flags.values == CANDIDATE).sum())
    numbers = (
        len(masks),
        len(masks) - len(np.unique(rows[in_target])),
        len(flags.values) - candidates,
        candidates,
        int(sizes[in_target].sum()),
        int(masks.source_lengths.max(initial=0)),
        int(masks.target_lengths.max(initial=0)),
    )
    for name, number in zip(TOTALS, numbers, strict=True):
        totals[name] = max(totals[name], number) if name.startswith("max_") else totals[name] + number
