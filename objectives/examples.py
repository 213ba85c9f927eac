"""What a model trains on: one rendered batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Examples:
    """``B`` rendered rows, right-padded with the pad id to the widths ``S`` and ``T``.

    Attributes:
        sequence_ids: ``(B, 16)`` uint8, which corpus rows these are.
        source_ids: ``(B, S)`` int32, the encoder's input.
        source_lengths: ``(B,)`` int32, real positions in each source row.
        target_ids: ``(B, T)`` int32, what the decoder has to say (its input is this, shifted right); T = 0 for an
            encoder-only objective.
        target_lengths: ``(B,)`` int32.
        labels: ``(B, S)`` int32 aligned with the source, ``IGNORED`` where nothing is asked; encoder-only objectives.
        segment_ids: ``(B, S)`` int32, the part (0, 1, ...) a position belongs to, -1 in padding; None if not asked.
        global_positions: ``(B, S)`` bool, positions with global attention; None where the objective has none.
    """

    sequence_ids: np.ndarray
    source_ids: np.ndarray
    source_lengths: np.ndarray
    target_ids: np.ndarray
    target_lengths: np.ndarray
    labels: np.ndarray | None = None
    segment_ids: np.ndarray | None = None
    global_positions: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.source_ids)

    @property
    def source_mask(self) -> np.ndarray:
        """``(B, S)`` bool, True at real positions."""
        return np.arange(self.source_ids.shape[1]) < self.source_lengths[:, None]

    @property
    def target_mask(self) -> np.ndarray:
        """``(B, T)`` bool, True at real positions."""
        return np.arange(self.target_ids.shape[1]) < self.target_lengths[:, None]
