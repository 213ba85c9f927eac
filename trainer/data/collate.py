"""Collation of rendered examples to one padded batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from corpora.compiled import compiled
from corpora.errors import FarspanError
from objectives.api.examples import IGNORED, Examples
from objectives.api.special_tokens import PAD, SpecialTokens
from trainer.data.batch import Batch
from trainer.data.config import DataConfig


def collate(examples: Examples, samples: np.ndarray, data: DataConfig, special: SpecialTokens) -> Batch:
    """Pad rendered rows to the configured widths and shift targets right."""
    lengths = examples.source_lengths
    width = _width("source", examples, lengths, data.source_length, data.source_multiple)
    if examples.labels is None:
        target_width = _width("target", examples, examples.target_lengths, data.target_length, data.target_multiple)
        labels = _padded(examples.target_ids, examples.target_lengths, target_width, IGNORED)
        shifted = _padded(examples.target_ids, examples.target_lengths, target_width, special[PAD], shift=1)
        shifted[:, 0] = special[data.decoder_start]
        decoder, target_tokens = torch.from_numpy(shifted), int(examples.target_lengths.sum())
        if examples.prompt_lengths is not None:  # input of the decoder without loss
            labels[np.arange(target_width) < examples.prompt_lengths[:, None]] = IGNORED
            target_tokens -= int(examples.prompt_lengths.sum())
    else:
        labels, decoder = _padded(examples.labels, lengths, width, IGNORED), None
        target_tokens = int((labels != IGNORED).sum())
    return Batch(
        samples=samples,
        sequence_ids=examples.sequence_ids,
        source_ids=torch.from_numpy(_padded(examples.source_ids, lengths, width, special[PAD])),
        source_padding_mask=None
        if lengths.min(initial=width) == width
        else torch.from_numpy(_padding_mask(lengths, width)),
        decoder_ids=decoder,
        labels=torch.from_numpy(labels),
        source_tokens=int(lengths.sum()),
        target_tokens=target_tokens,
        segment_ids=None if data.across_documents else _segments(examples, width),
        global_positions=_global_positions(examples, width),
    )


def _segments(examples: Examples, width: int) -> Tensor | None:
    """Segment ids, ``(B, width)`` int32; None if every row is one document, which needs no mask."""
    if examples.segment_ids is None:
        raise FarspanError(
            "data.across_documents is false, but the examples do not say which document a position belongs to; set it "
            "to true, or train on a source that gives segment_ids"
        )
    segments = _padded(examples.segment_ids, examples.source_lengths, width, -1)
    return torch.from_numpy(segments) if segments.max(initial=0) > 0 else None


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
    return torch.from_numpy(_padded(chosen, examples.source_lengths, width, 0).astype(bool))


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


def _padded(ids: np.ndarray, lengths: np.ndarray, width: int, filler: int, shift: int = 0) -> np.ndarray:
    """Copy the first ``lengths`` columns of each row to column ``shift``, followed by ``filler``.

    Args:
        ids: ``(B, N)``.
        lengths: ``(B,)``.

    Returns:
        ``(B, width)`` int32.
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
