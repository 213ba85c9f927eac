"""A micro-batch, the model's input: rendered examples collated to padded tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from corpora.compiled import compiled
from corpora.errors import FarspanError
from objectives.api.examples import IGNORED, Examples
from objectives.api.special_tokens import PAD, SpecialTokens
from trainer.data.config import DataConfig
from trainer.model.context import send


@dataclass(frozen=True)
class Batch:
    """One micro-batch of ``B`` samples, the model's input.

    ``segment_ids`` are the document of each position, or with packing its example, as ``target_segment_ids`` are for
    the target; both are -1 at padding. They are None if positions attend across documents, or no row has more than one.
    """

    samples: np.ndarray  # (B,) int64, numbers of the samples in the run
    sequence_ids: np.ndarray  # (B, 16) uint8
    source_ids: Tensor  # (B, S) int32
    source_padding_mask: Tensor | None  # (B, S) bool, False at padding; None without padding
    decoder_ids: Tensor | None  # (B, T) int32, the target shifted right; None for a masked language model
    labels: Tensor  # (B, T) int32, or (B, S) for a masked language model; IGNORED at positions without loss
    source_tokens: int  # positions that are not padding
    target_tokens: int  # positions with loss
    segment_ids: Tensor | None = None  # (B, S) int32
    global_positions: Tensor | None = None  # (B, S) bool, True at those with global attention; None without any
    target_segment_ids: Tensor | None = None  # (B, T) int32; None without packing

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
        optional = {"decoder_ids": self.decoder_ids, "target_segment_ids": self.target_segment_ids}
        return {**inputs, **{name: x for name, x in optional.items() if x is not None}}

    def to(self, device: torch.device) -> Batch:
        """Move to ``device`` by ``send``, so that the model can derive shapes from the host's copy without waiting."""
        return self.map(lambda x: send(x, device))

    def map(self, change: Callable[[Any], Any]) -> Batch:
        """Apply ``change`` to each tensor."""
        changed: dict[str, Any] = {name: None if x is None else change(x) for name, x in self.inputs.items()}
        return replace(self, **changed)

    def without_targets(self) -> Batch:
        """The same shapes without labels, for a rank that has no micro-batch left while others have."""
        return replace(self, labels=torch.full_like(self.labels, IGNORED), source_tokens=0, target_tokens=0)


class Batches(Protocol):
    """The batches of a run, step by step."""

    def step(self, step: int) -> Sequence[Batch]:
        """This rank's micro-batches of ``step``, counted from 0; every rank has the same number of them."""


def collate(examples: Examples, samples: np.ndarray, data: DataConfig, special: SpecialTokens) -> Batch:
    """Pad rendered rows to the configured widths and shift targets right."""
    lengths, targets = examples.source_lengths, None
    width = _width("source", examples, lengths, data.source_length, data.source_multiple)
    if examples.labels is None:
        target_width = _width("target", examples, examples.target_lengths, data.target_length, data.target_multiple)
        labels = _pad(examples.target_ids, examples.target_lengths, target_width, IGNORED)
        shifted = _pad(examples.target_ids, examples.target_lengths, target_width, special[PAD], shift=1)
        shifted[:, 0] = special[data.decoder_start]
        if examples.prompt_lengths is not None:  # input of the decoder without loss
            labels[np.arange(target_width) < examples.prompt_lengths[:, None]] = IGNORED
        if examples.target_segment_ids is not None:
            targets = _pad(examples.target_segment_ids, examples.target_lengths, target_width, -1)
            shifted[:, 1:][targets[:, 1:] > targets[:, :-1]] = special[data.decoder_start]
        if examples.prompt_mask is not None:
            labels[_pad(examples.prompt_mask, examples.target_lengths, target_width, 0).astype(bool)] = IGNORED
        decoder = torch.from_numpy(shifted)
    else:
        labels, decoder = _pad(examples.labels, lengths, width, IGNORED), None
    segments = None if data.across_documents and targets is None else _segments(examples, width)
    mask = None if lengths.min(initial=width) == width else _padding_mask(lengths, width)
    if targets is not None and segments is not None:
        mask = None if segments.min(initial=0) >= 0 else segments >= 0
    return Batch(
        samples=samples,
        sequence_ids=examples.sequence_ids,
        source_ids=torch.from_numpy(_pad(examples.source_ids, lengths, width, special[PAD])),
        source_padding_mask=None if mask is None else torch.from_numpy(mask),
        decoder_ids=decoder,
        labels=torch.from_numpy(labels),
        source_tokens=int(lengths.sum() if mask is None else mask.sum()),
        target_tokens=int((labels != IGNORED).sum()),
        segment_ids=None if segments is None else torch.from_numpy(segments),
        global_positions=_global_positions(examples, width),
        target_segment_ids=None if targets is None or segments is None else torch.from_numpy(targets),
    )


def _segments(examples: Examples, width: int) -> np.ndarray | None:
    """Segment ids, ``(B, width)`` int32; None if every row is one document, which needs no mask."""
    if examples.segment_ids is None:
        raise FarspanError(
            "data.across_documents is false, but the examples do not say which document a position belongs to; set it "
            "to true, or train on a source that gives segment_ids"
        )
    segments = _pad(examples.segment_ids, examples.source_lengths, width, -1)
    return segments if segments.max(initial=0) > 0 else None


def _global_positions(examples: Examples, width: int) -> Tensor | None:
    """Positions with global attention, ``(B, width)`` bool; None if there are none."""
    chosen = examples.global_positions
    if chosen is None or not chosen.any():
        return None
    beyond = chosen & ~_padding_mask(examples.source_lengths, chosen.shape[1])
    if beyond.any():
        row, place = np.argwhere(beyond)[0]
        raise FarspanError(
            f"sequence {examples.sequence_ids[row].tobytes().hex()}: position {place} is marked as global, but its "
            f"source has {examples.source_lengths[row]} positions; correct the objective's global positions"
        )
    return torch.from_numpy(_pad(chosen, examples.source_lengths, width, 0).astype(bool))


def _width(side: str, examples: Examples, lengths: np.ndarray, limit: int, multiple: int) -> int:
    longest = int(lengths.max(initial=1))
    if longest > limit:
        row = int(lengths.argmax())
        raise FarspanError(
            f"sequence {examples.sequence_ids[row].tobytes().hex()}: its {side} has {longest} positions, "
            f"data.{side}_length is {limit}; raise it (and the model's positions), or make shorter examples"
        )
    return -(-longest // multiple) * multiple


def _padding_mask(lengths: np.ndarray, width: int) -> np.ndarray:
    """Mask of ``(B, width)`` bool, True at the first ``lengths``, ``(B,)``, positions."""
    out = np.ones((len(lengths), width), bool)
    _fill_after(lengths, False, out)
    return out


def _pad(ids: np.ndarray, lengths: np.ndarray, width: int, filler: int, shift: int = 0) -> np.ndarray:
    """Copy the first ``lengths`` ``(B,)`` columns of ``ids`` ``(B, N)`` from column ``shift`` on, then ``filler``.

    Returns ``(B, width)`` int32.
    """
    out = np.empty((len(ids), width), np.int32)
    kept = min(ids.shape[1], width - shift)
    out[:, shift : shift + kept] = ids[:, :kept]
    _fill_after(lengths + shift, filler, out)
    return out


@compiled
def _fill_after(lengths: np.ndarray, filler: int, out: np.ndarray) -> None:
    for row in range(len(out)):
        out[row, lengths[row] :] = filler
