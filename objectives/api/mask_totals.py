"""Totals of a mask set for its manifest (docs/formats.md)."""

from __future__ import annotations

import numpy as np

from objectives.api.masks import CANDIDATE, IN_TARGET, MaskBatch

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
