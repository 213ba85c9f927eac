"""A micro-batch, the model's input, and the batches of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from objectives.api.examples import IGNORED
from trainer.model.host import sent


@dataclass(frozen=True)
class Batch:
    """One micro-batch of ``B`` samples, the model's input.

    Attributes:
        samples: ``(B,)`` int64, numbers of the samples in the run.
        sequence_ids: ``(B, 16)`` uint8.
        source_ids: ``(B, S)`` int32.
        source_padding_mask: ``(B, S)`` bool, False at padding; None without padding.
        decoder_ids: ``(B, T)`` int32, the target shifted right; None for a masked language model.
        labels: ``(B, T)`` int32, or ``(B, S)`` for a masked language model; ``IGNORED`` at
            positions without loss.
        source_tokens, target_tokens: number of positions that are not padding, and of those with loss.
        segment_ids: ``(B, S)`` int32, the document of each position, -1 at padding; None if positions attend across
            documents, or no row has more than one.
        global_positions: ``(B, S)`` bool, True at positions with global attention, which some patterns ignore; None if
            there are none.
    """

    samples: np.ndarray
    sequence_ids: np.ndarray
    source_ids: Tensor
    source_padding_mask: Tensor | None
    decoder_ids: Tensor | None
    labels: Tensor
    source_tokens: int
    target_tokens: int
    segment_ids: Tensor | None = None
    global_positions: Tensor | None = None

    @classmethod
    def full(cls, source_ids: Tensor, labels: Tensor, decoder_ids: Tensor | None, global_first: bool = True) -> Batch:
        """Make a batch without padding from ids, for the dry run and for tests."""
        rows, width = source_ids.shape
        return cls(
            samples=np.arange(rows),
            sequence_ids=np.zeros((rows, 16), np.uint8),
            source_ids=source_ids,
            source_padding_mask=None,
            decoder_ids=decoder_ids,
            labels=labels,
            source_tokens=source_ids.numel(),
            target_tokens=int((labels != IGNORED).sum()),
            global_positions=(torch.arange(width) == 0).expand(rows, -1) if global_first else None,
        )

    @property
    def inputs(self) -> dict[str, Tensor | None]:
        """Keyword arguments of the model."""
        inputs = {
            "source_ids": self.source_ids,
            "source_padding_mask": self.source_padding_mask,
            "labels": self.labels,
            "segment_ids": self.segment_ids,
            "global_positions": self.global_positions,
        }
        return inputs if self.decoder_ids is None else {**inputs, "decoder_ids": self.decoder_ids}

    def to(self, device: torch.device) -> Batch:
        """Move to ``device`` by ``sent``, so that the model can derive shapes from the host's copy without waiting."""
        return self.map(lambda x: sent(x, device))

    def map(self, change: Callable[[Any], Any]) -> Batch:
        """Apply ``change`` to each tensor."""
        changed: dict[str, Any] = {name: None if x is None else change(x) for name, x in self.inputs.items()}
        return replace(self, **changed)

    def without_targets(self) -> Batch:
        """The same shapes without labels, for a rank that has no micro-batch left while others have."""
        return replace(self, labels=torch.full_like(self.labels, IGNORED), source_tokens=0, target_tokens=0)


class Batches(Protocol):
    """The batches of a run, step by step."""

    def step(self, step: int) -> list[Batch]:
        """This rank's micro-batches of ``step``, counted from 0; every rank has the same number of them."""
