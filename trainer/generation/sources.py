"""The input and output of generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import Tensor

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged


class DecoderIds(NamedTuple):
    """Special ids of generation.

    Attributes:
        start: first id of the decoder's input.
        end: id that ends a text.
        pad: id that is never generated.
    """

    start: int
    end: int
    pad: int


@dataclass(frozen=True, kw_only=True)
class Sources:
    """``B`` encoder rows, and ``n`` samples that each generate one text from one of them.

    Attributes:
        source_ids: ``(B, S)`` int32 or int64.
        source_padding_mask: ``(B, S)`` bool, False at padding, which is on the right; None without padding.
        segment_ids: ``(B, S)`` int, the document of each position, -1 at padding; None if the encoder attends across
            documents.
        global_positions: ``(B, S)`` bool, positions with global attention; None if there are none.
        rows: ``(n,)`` int64, the encoder row of each sample; None if sample i has row i. A row is encoded once, and its
            samples share its keys and values.
        prompts: the first ids of each sample's decoder input, after the start id; None without prompts.
        seeds: ``(n,)`` uint64, seed of each sample's draws; needed for sampling. It should not depend on the sample's
            place in the batch.
        multiple: number whose multiples rows were padded to in training (``data.source_multiple``).
    """

    source_ids: Tensor
    source_padding_mask: Tensor | None = None
    segment_ids: Tensor | None = None
    global_positions: Tensor | None = None
    rows: np.ndarray | None = None
    prompts: Ragged | None = None
    seeds: np.ndarray | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        shape = self.source_ids.shape
        for name in ("source_padding_mask", "segment_ids", "global_positions"):
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise FarspanError(f"sources: {name} is {tuple(value.shape)}, source_ids {tuple(shape)}; align them")
        for name in ("prompts", "seeds"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self):
                raise FarspanError(f"sources: {len(value)} {name} for {len(self)} samples; give one for each")
        if self.rows is not None and len(beyond := np.flatnonzero((self.rows < 0) | (self.rows >= shape[0]))):
            (sample, *_) = beyond
            raise FarspanError(
                f"sources: sample {sample} has row {self.rows[sample]}, but there are {shape[0]} encoder rows; number "
                "them from 0"
            )

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.source_ids) if self.rows is None else len(self.rows)

    @property
    def encoder_rows(self) -> np.ndarray:
        """``(n,)`` int64, the encoder row of each sample."""
        return np.arange(len(self)) if self.rows is None else self.rows


@dataclass(frozen=True)
class Generated:
    """Generated texts.

    Attributes:
        tokens: ids of each text, n arrays ``(t,)`` int32, without start, prompt and end.
        scores: ``(n,)`` float32, log-probability divided by the length penalty.
    """

    tokens: list[np.ndarray]
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)
