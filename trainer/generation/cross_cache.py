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

from trainer.generation.config import Sources
from trainer.model.context import Context, send
from trainer.model.decoder import DecoderLayer
from trainer.model.layers.attention import CrossAttention, SelfAttention
from trainer.model.seq2seq import Seq2Seq

GRAIN = 16
"""Widths are multiples of this, numbers of rows and queries of 4, so that a row's result does not depend on others.

In torch's CPU build, a matrix product computes each row with the same instructions for any number of rows that is a
multiple of 4.
"""
_POSITIONS = 16_384  # positions encoded in one pass


class Keys(NamedTuple):
    """Keys, values and padding mask of one cross-attention."""

    k: Tensor  # (g, heads, W, D), contiguous by head for repeated reading
    v: Tensor
    mask: Tensor | None  # (g, 1, 1, W) bool, False at padding

    def take(self, places: Tensor | slice) -> Keys:
        """Select rows."""
        return Keys(self.k[places], self.v[places], None if self.mask is None else self.mask[places])


@dataclass(frozen=True)
class RowGroup:
    """``g`` encoder rows of one width."""

    rows: np.ndarray  # (g,) int64, ascending
    keys: tuple[dict[bool, Keys], ...]  # of each layer's cross-attentions, by ``Crossing.extra``; False if merged

    def take(self, places: np.ndarray) -> RowGroup:
        """Select the rows at the given ``places``."""
        if len(places) == len(self.rows):
            return self
        device = next(keys.k.device for layer in self.keys for keys in layer.values())
        at = torch.from_numpy(places).to(device)
        taken = tuple({extra: keys.take(at) for extra, keys in layer.items()} for layer in self.keys)
        return RowGroup(self.rows[places], taken)


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
    grain = math.lcm(GRAIN, sources.multiple)
    table = getattr(model.encoder.embedded.positions, "weight", None)
    used = np.unique(sources.encoder_rows)
    kinds: dict[_Kind, list[int]] = defaultdict(list)
    for row, kind in zip(used, _kinds(sources, used, grain, None if table is None else len(table)), strict=True):
        kinds[kind].append(int(row))
    groups: list[RowGroup] = []
    for kind, rows in kinds.items():
        most = max(1, _POSITIONS // kind.width)
        parts = [np.array(rows[first : first + most]) for first in range(0, len(rows), most)]
        groups.extend(_encode(model, sources, part, kind, pad) for part in parts)
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


def _encode(model: Seq2Seq, sources: Sources, rows: np.ndarray, kind: _Kind, pad: int) -> RowGroup:
    def cut(x: Tensor | None, filler: int) -> Tensor | None:
        """Select these rows of ``(B, S)`` as ``(g, W)``, on the model's device."""
        if x is None:
            return None
        x = x.cpu()[torch.from_numpy(rows)][:, : kind.width]
        return send(F.pad(x, (0, kind.width - x.shape[1]), value=filler), model.tokens.weight.device)

    ids = cut(sources.source_ids, pad)
    assert ids is not None
    mask = None
    if not kind.full:
        padding_mask = sources.source_padding_mask
        mask = cut(torch.ones_like(sources.source_ids, dtype=torch.bool) if padding_mask is None else padding_mask, 0)
    chosen = cut(sources.global_positions, 0) if kind.globals else None
    encoded = model.encode(ids, mask, cut(sources.segment_ids, -1), chosen)
    layers = []
    for layer in model.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        attentions: dict[bool, SelfAttention | CrossAttention] = {extra: each for extra, each, _ in layer.crossings()}
        if layer.merged:
            attentions[False] = layer.attention
        layers.append({extra: _keys(attention, *encoded.keys(extra)) for extra, attention in attentions.items()})
    return RowGroup(rows, tuple(layers))


def _keys(cross: SelfAttention | CrossAttention, states: Tensor, context: Context) -> Keys:
    """Project states ``(g, W, d)`` to keys and values."""
    k, v = cross.project_keys(states)
    mask = None if context.padding_mask is None else context.padding_mask[:, None, None]
    return Keys(k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous(), mask)


class Part(NamedTuple):
    """Attention to a part of the keys, of which ``merge`` makes one softmax over all parts."""

    mixed: Tensor  # (..., D), values weighted by the exponentials of scores
    total: Tensor  # (..., 1), sum of these exponentials
    most: Tensor  # (..., 1), highest score, which is subtracted from all


def attend_part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Part:
    """Attend from ``(N, H, Q, D)`` to ``(N, heads, K, D)`` keys; ``mask`` is ``(N, 1, 1 or Q, K)`` bool."""
    count, heads = q.shape[1] // k.shape[1], k.shape[1]
    grouped = q.unflatten(1, (heads, count)).flatten(2, 3)  # (N, heads, H / heads * Q, D)
    scores = ((grouped @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)).float()
    scores = scores.unflatten(2, (count, -1)).flatten(1, 2)  # (N, H, Q, K)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    most = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)  # without keys, all weights are 0
    weights = (scores - most).exp()
    mixed = weights.to(v.dtype).unflatten(1, (heads, count)).flatten(2, 3) @ v
    return Part(mixed.unflatten(2, (count, -1)).flatten(1, 2), weights.sum(-1, keepdim=True), most)


def merge(one: Part, other: Part) -> Tensor:
    """Return the result of one softmax over the keys of both parts, ``(..., D)``; at least one has a key."""
    most = torch.maximum(one.most, other.most)
    first, second = (one.most - most).exp(), (other.most - most).exp()
    mixed = (first * one.mixed + second * other.mixed) / (first * one.total + second * other.total)
    return mixed.to(one.mixed.dtype)


class CrossCache:
    """Cross-attention of all unfinished texts to their encoder rows."""

    def __init__(self, groups: list[RowGroup], rows: np.ndarray, beams: int, device: torch.device) -> None:
        """Cache the keys of ``groups`` of encoded rows; sample i reads row ``rows[i]``, ``(n,)`` int64."""
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

    def attend(self, layer: int, extra: bool, q: Tensor, scale: float | None, merged: bool) -> tuple[Tensor, ...]:
        """Attend from ``(R, 1, H, D)`` queries, of n * beams texts followed by padding rows, to the keys ``extra``.

        Returns the same shape alone, or the tensors of a ``Part`` if ``merged``.
        """
        parts = []
        for group, slots in zip(self.groups, self.slots, strict=True):
            mixed = _attend(q[:, 0][slots].transpose(1, 2), group.keys[layer][extra], scale, merged)  # (g, H, Q, D)
            parts.append([part.transpose(1, 2).flatten(0, 1) for part in mixed])
        texts = (torch.cat(part)[self.places] for part in zip(*parts, strict=True))  # (n * beams, H, D)
        return tuple(F.pad(part, (0, 0, 0, 0, 0, len(q) - len(part)))[:, None] for part in texts)

    def attend_alone(
        self, sample: int, layer: int, extra: bool, q: Tensor, scale: float | None, merged: bool
    ) -> tuple[Tensor, ...]:
        """Attend from ``(1, L, H, D)`` queries of one sample; returns the same shapes as ``attend``, with L."""
        row = self.rows[sample]
        group = next(group for group in self.groups if row in group.rows)
        place = int(np.flatnonzero(group.rows == row)[0])
        keys = group.keys[layer][extra].take(slice(place, place + 1))
        return tuple(part.transpose(1, 2) for part in _attend(q.transpose(1, 2), keys, scale, merged))


def _attend(q: Tensor, keys: Keys, scale: float | None, merged: bool) -> tuple[Tensor, ...]:
    """Attend from ``(g, H, Q, D)``; returns ``(g, H, Q, D)`` alone, or the tensors of a ``Part``."""
    if merged:
        return attend_part(q, *keys, scale)
    grouped = q.shape[1] != keys.k.shape[1]
    return (F.scaled_dot_product_attention(q, keys.k, keys.v, attn_mask=keys.mask, scale=scale, enable_gqa=grouped),)
