"""Examples of several objectives as one batch, with mode tokens before their sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED, Examples


def drop_modes(examples: Examples, shift: int) -> Examples:
    """Drop the first ``shift`` positions of sources."""
    columns = {name: getattr(examples, name) for name in ("source_ids", "labels", "segment_ids", "global_positions")}
    shown = {name: column[:, shift:] for name, column in columns.items() if column is not None}
    return replace(examples, **shown, source_lengths=examples.source_lengths - shift)


def merge_examples(ids: np.ndarray, parts: Sequence[tuple[np.ndarray, int | None, Examples]], pad: int) -> Examples:
    """Put examples of several objectives into one batch.

    ``ids``: ``(n, 16)`` uint8, sequence ids. ``parts``: for each objective, its rows of the batch, the id of its mode
    token or None, and its examples. ``pad``: id of padding.
    """
    if len({examples.labels is None for _, _, examples in parts}) > 1:
        raise FarspanError("mixture: some components make targets, others labels; mix components of one kind")

    def column(name: str, filler: int, first: int, like: str) -> np.ndarray | None:
        """Widen a column; in rows with a mode token it follows that token's value, ``first``."""
        shifts = [int(mode is not None and like == "source_ids" and len(rows) > 0) for rows, mode, _ in parts]
        columns = [getattr(examples, name) for _, _, examples in parts]
        present = [values for values in columns if values is not None]
        if not present:
            return None
        width = max(getattr(part[2], like).shape[1] + shift for part, shift in zip(parts, shifts, strict=True))
        out = np.full((len(ids), width), filler, present[0].dtype)
        for (rows, mode, _), values, shift in zip(parts, columns, shifts, strict=True):
            if shift:
                out[rows, 0] = mode if name == "source_ids" else first
            if values is not None:
                out[rows, shift : shift + values.shape[1]] = values
        return out

    def lengths(name: str) -> np.ndarray:
        out = np.zeros(len(ids), np.int32)
        for rows, mode, examples in parts:
            values = getattr(examples, name)
            out[rows] = 0 if values is None else values + int(mode is not None and name == "source_lengths")
        return out

    sources, targets = column("source_ids", pad, pad, "source_ids"), column("target_ids", pad, pad, "target_ids")
    assert sources is not None
    assert targets is not None
    marked = column("global_positions", 0, 0, "source_ids")
    if marked is not None and marked.shape[1] > 1:
        for rows, mode, _ in parts:
            if mode is not None:  # a first token that sees everything hands this on to the mode token before it
                marked[rows, 0] = marked[rows, 1]
    return Examples(
        ids,
        sources,
        lengths("source_lengths"),
        targets,
        lengths("target_lengths"),
        labels=column("labels", IGNORED, IGNORED, "source_ids"),
        segment_ids=column("segment_ids", -1, 0, "source_ids"),
        global_positions=marked,
        prompt_lengths=lengths("prompt_lengths") if any(part[2].prompt_lengths is not None for part in parts) else None,
    )
