"""Cached keys and values of the encoder rows for every cross-attention layer.

All beams and samples of a row attend to the same keys, so nothing is copied or reordered.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.generation.sources import Sources
from trainer.model.decoder import DecoderLayer
from trainer.model.host import sent
from trainer.model.layers.attention import CrossAttention
from trainer.model.seq2seq import Seq2Seq

GRAIN = 16
"""Widths are multiples of this, numbers of rows and queries of 4, so that a row's result does not depend on others.

In torch's CPU build, a matrix product computes each row with the same instructions for any number of rows that is a
multiple of 4.
"""
_POSITIONS = 16_384  # positions encoded in one pass


@dataclass(frozen=True)
class RowGroup:
    """``g`` encoder rows of one width.

    Attributes:
        rows: ``(g,)`` int64, ascending.
        keys_values: ``(g, H, W, D)`` keys and values of each decoder layer; None in layers without cross-attention.
        mask: ``(g, 1, 1, W)`` bool, False at padding; None without padding.
    """

    rows: np.ndarray
    keys_values: tuple[tuple[Tensor, Tensor] | None, ...]
    mask: Tensor | None

    def take(self, places: np.ndarray) -> RowGroup:
        """Select the rows at the given ``places``."""
        if len(places) == len(self.rows):
            return self
        at = torch.from_numpy(places).to(next(pair[0] for pair in self.keys_values if pair).device)
        taken = tuple(None if pair is None else (pair[0][at], pair[1][at]) for pair in self.keys_values)
        return RowGroup(self.rows[places], taken, None if self.mask is None else self.mask[at])


class _Kind(NamedTuple):
    """Properties that rows encoded together share, so that no row's result depends on the others."""

    width: int
    full: bool
    globals: int
    documents: int


def encode_rows(model: Seq2Seq, sources: Sources, pad: int) -> list[RowGroup]:
    """Encode the rows that samples use, in groups of equal width.

    A row's width is its own length, rounded up, so its result does not depend on other rows.
    """
    device = model.tokens.weight.device
    grain = math.lcm(GRAIN, sources.multiple)
    limit = getattr(model.encoder.embedded.positions, "weight", None)
    used = np.unique(sources.encoder_rows)
    kinds: dict[_Kind, list[int]] = defaultdict(list)
    for row, kind in zip(used, _kinds(sources, used, grain, None if limit is None else len(limit)), strict=True):
        kinds[kind].append(int(row))
    groups: list[RowGroup] = []
    for kind, rows in kinds.items():
        most = max(1, _POSITIONS // kind.width)
        parts = [np.array(rows[first : first + most]) for first in range(0, len(rows), most)]
        groups.extend(_encode(model, sources, part, kind, pad, device) for part in parts)
    return groups


def _kinds(sources: Sources, rows: np.ndarray, grain: int, limit: int | None) -> list[_Kind]:
    at = torch.from_numpy(rows)
    mask, length = sources.source_padding_mask, sources.source_ids.shape[1]
    lengths = [length] * len(rows) if mask is None else mask.cpu()[at].sum(1).clamp(min=1).tolist()
    chosen, segments = sources.global_positions, sources.segment_ids
    if chosen is not None and mask is not None:
        chosen = chosen & mask
    global_counts = [0] * len(rows) if chosen is None else chosen.cpu()[at].sum(1).tolist()
    documents = [1] * len(rows) if segments is None else (segments.cpu()[at].amax(1) + 1).clamp(min=1).tolist()
    widths = [-(-size // grain) * grain for size in lengths]
    if limit is not None:
        widths = [max(size, min(width, limit)) for width, size in zip(widths, lengths, strict=True)]
    return [
        _Kind(width, width == size, count, number)
        for width, size, count, number in zip(widths, lengths, global_counts, documents, strict=True)
    ]


def _encode(
    model: Seq2Seq, sources: Sources, rows: np.ndarray, kind: _Kind, pad: int, device: torch.device
) -> RowGroup:
    def cut(x: Tensor | None, filler: int) -> Tensor | None:
        """Select these rows of ``(B, S)`` as ``(g, W)``, on the model's device."""
        if x is None:
            return None
        x = x.cpu()[torch.from_numpy(rows)][:, : kind.width]
        return sent(F.pad(x, (0, kind.width - x.shape[1]), value=filler), device)

    ids = cut(sources.source_ids, pad)
    assert ids is not None
    mask = None
    if not kind.full:
        given = sources.source_padding_mask
        mask = cut(torch.ones_like(sources.source_ids, dtype=torch.bool) if given is None else given, 0)
    chosen = cut(sources.global_positions, 0) if kind.globals else None
    encoded = model.encode(ids, mask, cut(sources.segment_ids, -1), chosen)
    pairs = []
    for layer in model.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        pairs.append(None if layer.cross_attention is None else _keys_values(layer.cross_attention, encoded.states))
    seen = encoded.padding_mask
    return RowGroup(rows, tuple(pairs), None if seen is None else seen[:, None, None])


def _keys_values(cross: CrossAttention, states: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of states ``(g, W, d)``, ``(g, H, W, D)`` each, contiguous by head for repeated reading."""
    k, v = cross.kv(states).unflatten(-1, (2, cross.heads, -1)).unbind(2)
    return k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()


class CrossCache:
    """Cross-attention of all unfinished texts to their encoder rows."""

    def __init__(self, groups: list[RowGroup], rows: np.ndarray, beams: int, device: torch.device) -> None:
        """
        Args:
            groups: encoded rows.
            rows: ``(n,)`` int64, encoder row of each sample.
            beams: number of texts of each sample.
            device: device of the keys.
        """
        self.beams, self.device = beams, device
        self._arrange(groups, rows)

    def keep(self, samples: np.ndarray) -> None:
        """Keep only the samples at the given ascending indices."""
        rows = self.rows[samples]
        kept = [group.take(np.flatnonzero(np.isin(group.rows, rows))) for group in self.groups]
        self._arrange([group for group in kept if len(group.rows)], rows)

    def _arrange(self, groups: list[RowGroup], rows: np.ndarray) -> None:
        """Assign each text a slot among the queries of its row's group."""
        self.groups, self.rows = groups, rows
        self.slots: list[Tensor] = []  # (g, Q) per group, text in each slot
        places, first = np.zeros((len(rows), self.beams), np.int64), 0
        for group in groups:
            samples = [np.flatnonzero(rows == row) for row in group.rows]
            size = -(-max(map(len, samples)) * self.beams // 4) * 4
            slots = np.zeros((len(samples), size), np.int64)
            for place, own in enumerate(samples):
                texts = own[:, None] * self.beams + np.arange(self.beams)
                slots[place, : texts.size] = texts.ravel()
                places[own] = first + place * size + np.arange(texts.size).reshape(texts.shape)
            self.slots.append(torch.from_numpy(slots).to(self.device))
            first += slots.size
        self.places = torch.from_numpy(places.ravel()).to(self.device)  # (n * beams,), slot of each text

    def attend(self, layer: int, cross: CrossAttention, x: Tensor) -> Tensor:
        """Attend from ``(R, 1, d)`` states, n * beams texts followed by padding rows; returns ``(R, 1, d)``."""
        q = cross.q(x).unflatten(-1, (cross.heads, -1))[:, 0]  # (R, H, D)
        mixed = []
        for group, slots in zip(self.groups, self.slots, strict=True):
            pair = group.keys_values[layer]
            assert pair is not None
            part = F.scaled_dot_product_attention(
                q[slots].transpose(1, 2), *pair, attn_mask=group.mask, scale=cross.scale
            )  # (g, H, Q, D)
            mixed.append(part.transpose(1, 2).flatten(0, 1))
        texts = torch.cat(mixed)[self.places].flatten(1)  # (n * beams, H D)
        return cross.out(F.pad(texts, (0, 0, 0, len(x) - len(texts))))[:, None]

    def attend_alone(self, sample: int, layer: int, cross: CrossAttention, x: Tensor) -> Tensor:
        """Attend from ``(1, L, d)`` states of one sample; returns ``(1, L, d)``."""
        row = self.rows[sample]
        group = next(group for group in self.groups if row in group.rows)
        place, pair = int(np.flatnonzero(group.rows == row)[0]), group.keys_values[layer]
        assert pair is not None
        q = cross.q(x).unflatten(-1, (cross.heads, -1)).transpose(1, 2)
        k, v = (part[place : place + 1] for part in pair)
        mask = None if group.mask is None else group.mask[place : place + 1]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=cross.scale)
        return cross.out(mixed.transpose(1, 2).flatten(2))
