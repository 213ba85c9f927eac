"""``Examples``, a rendered batch, which is the input of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from corpora.errors import FarspanError

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Examples:
    """``B`` rendered rows, right-padded with the pad id to the widths ``S`` and ``T``.

    Attributes:
        sequence_ids: ``(B, 16)`` uint8, ids of the corpus rows.
        source_ids: ``(B, S)`` int32, the encoder's input.
        source_lengths: ``(B,)`` int32, positions of each source row without padding.
        target_ids: ``(B, T)`` int32, the decoder's targets (shifted right, they are its input); T = 0 for an
            encoder-only objective.
        target_lengths: ``(B,)`` int32, positions of each target row without padding.
        labels: ``(B, S)`` int32 aligned with the source, ``IGNORED`` for positions without a target; encoder-only
            objectives.
        segment_ids: ``(B, S)`` int32, the part (0, 1, ...) of each position, -1 in padding; None if not requested.
        global_positions: ``(B, S)`` bool, positions with global attention; None if the objective has none.
        prompt_lengths: ``(B,)`` int32, length of the prompt at the start of each target, which has no loss; None
            without prompts.
        target_segment_ids: ``(B, T)`` int32, the example (0, 1, ...) of each target position of packed rows, -1 in
            padding; ``segment_ids`` are then examples, too, with -1 also in padding between them. None without packing.
        prompt_mask: ``(B, T)`` bool, the positions of prompts in packed rows, in place of ``prompt_lengths``.
    """

    sequence_ids: np.ndarray
    source_ids: np.ndarray
    source_lengths: np.ndarray
    target_ids: np.ndarray
    target_lengths: np.ndarray
    labels: np.ndarray | None = None
    segment_ids: np.ndarray | None = None
    global_positions: np.ndarray | None = None
    prompt_lengths: np.ndarray | None = None
    target_segment_ids: np.ndarray | None = None
    prompt_mask: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source_ids)

    @property
    def source_mask(self) -> np.ndarray:
        """Padding mask of the source, ``(B, S)`` bool: False in padding."""
        return np.arange(self.source_ids.shape[1]) < self.source_lengths[:, None]

    @property
    def target_mask(self) -> np.ndarray:
        """Padding mask of the target, ``(B, T)`` bool: False in padding."""
        return np.arange(self.target_ids.shape[1]) < self.target_lengths[:, None]

    def take(self, rows: np.ndarray) -> Examples:
        """Copy the given rows ``(n,)``, in the given order."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return Examples(**taken)

    @classmethod
    def concatenate(cls, parts: Sequence[Examples], pad: int) -> Examples:
        """Concatenate the rows of all ``parts``, at least one, padded to the widest with the id ``pad``.

        If only some have global positions or prompts, the rows of the others have none. Labels and segment ids are in
        all parts or in none.
        """
        for name, what in (("labels", "labels in place of a target"), ("segment_ids", "numbers of documents")):
            if len({getattr(part, name) is None for part in parts}) > 1:
                raise FarspanError(f"examples with and without {what} cannot be in one batch; train on one kind")

        def widen(name: str, like: str, filler: int) -> np.ndarray | None:
            columns = [getattr(part, name) for part in parts]
            present = [column for column in columns if column is not None]
            if not present:
                return None
            width = max(getattr(part, like).shape[1] for part in parts)
            out = np.full((sum(map(len, parts)), width), filler, present[0].dtype)
            first = 0
            for part, column in zip(parts, columns, strict=True):
                if column is not None:
                    out[first : first + len(part), : column.shape[1]] = column
                first += len(part)
            return out

        some = any(part.prompt_lengths is not None for part in parts)
        prompts = [
            np.zeros(len(part), np.int32) if part.prompt_lengths is None else part.prompt_lengths for part in parts
        ]
        sources, targets = widen("source_ids", "source_ids", pad), widen("target_ids", "target_ids", pad)
        assert sources is not None
        assert targets is not None
        return cls(
            sequence_ids=np.concatenate([part.sequence_ids for part in parts]),
            source_ids=sources,
            source_lengths=np.concatenate([part.source_lengths for part in parts]),
            target_ids=targets,
            target_lengths=np.concatenate([part.target_lengths for part in parts]),
            labels=widen("labels", "source_ids", IGNORED),
            segment_ids=widen("segment_ids", "source_ids", -1),
            global_positions=widen("global_positions", "source_ids", 0),
            prompt_lengths=np.concatenate(prompts) if some else None,
            target_segment_ids=widen("target_segment_ids", "target_ids", -1),
            prompt_mask=widen("prompt_mask", "target_ids", 0),
        )
