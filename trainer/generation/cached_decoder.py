"""Incremental decoding: one token at a time, with cached keys and values of earlier positions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.generation.cross_cache import GRAIN, CrossCache, Part, attend_part, merge
from trainer.model.context import Context
from trainer.model.decoder import Crossing, DecoderLayer
from trainer.model.layers.attention import SelfAttention
from trainer.model.positions import rotate
from trainer.model.seq2seq import Seq2Seq

Cross = Callable[[int, bool, Tensor, float | None, bool], tuple[Tensor, ...]]
"""``CrossCache.attend``, or ``attend_alone`` for one sample."""


class Positions(NamedTuple):
    """Positions of the tokens in one pass, with masks over the first C cached columns for each kind of layer."""

    at: Tensor  # (R, L) int64
    masks: tuple[Tensor, ...]  # (R, 1, L, C) bool, or (R, H, L, C) biases
    rotations: tuple[tuple[Tensor, Tensor] | None, ...]  # cosines and sines of rotary positions, (R L, D) each


class CachedDecoder:
    """Decoder states of ``n * beams`` texts in progress.

    Rows are padded to a multiple of 4, so that no text's result depends on the number of texts.
    """

    def __init__(self, model: Seq2Seq, cross: CrossCache, prefixes: list[np.ndarray], columns: int) -> None:
        self.model, self.decoder, self.cross = model, model.decoder, cross
        self.device = model.tokens.weight.device
        self.columns = -(-columns // GRAIN) * GRAIN
        attentions = [cast(SelfAttention, layer.attention) for layer in self.decoder.layers]
        bias = self.decoder.bias
        layers = range(len(attentions)) if bias is not None and bias.buckets.per_layer else [0] * len(attentions)
        kinds = [(attention.pattern, layer) for attention, layer in zip(attentions, layers, strict=True)]
        self._kinds = list(dict.fromkeys(kinds))  # a pattern, and the layer whose biases it has
        self._kind_of = [self._kinds.index(kind) for kind in kinds]
        self._tables(columns)
        width = attentions[0].out.in_features // attentions[0].heads
        self.cache = self._empty(len(prefixes) * cross.beams, attentions[0].groups, width)
        for sample, prefix in enumerate(prefixes):
            if len(prefix) > 1:
                self._prefill(sample, prefix[:-1])

    def step(self, tokens: Tensor, positions: Tensor, last: int) -> Tensor:
        """Append a token to every text; returns ``(n * beams, V)`` logits of the next token.

        ``tokens`` and their ``positions`` are ``(n * beams,)`` int64; the start id has position 0, the largest is
        ``last``.
        """
        texts, columns = len(tokens), -(-(last + 1) // GRAIN) * GRAIN
        spare = self.cache.shape[2] - texts
        tokens, positions = F.pad(tokens, (0, spare)), F.pad(positions, (0, spare))
        x = self.model.tokens(tokens)[:, None]
        where = self.where(positions[:, None], columns)
        hidden = self.run(x, where, self.cache[..., :columns, :, :], self.cross.attend)
        return self.model.logits(hidden[:, 0])[:texts]

    def reorder(self, parents: Tensor, first: int, last: int) -> None:
        """Let text i continue text ``parents[i]``, of the same sample, in the columns from ``first`` up to ``last``.

        ``parents`` is ``(n * beams,)`` int64; columns before ``first`` are equal in all texts of a sample.
        """
        part = self.cache[:, :, : len(parents), first : last + 1]
        part.copy_(part.index_select(2, parents))

    def keep(self, samples: np.ndarray) -> None:
        """Keep only the samples at the given ascending places."""
        texts = torch.from_numpy((samples[:, None] * self.cross.beams + np.arange(self.cross.beams)).ravel())
        old = self.cache
        self.cache = self._empty(len(texts), *old.shape[-2:])
        self.cache[:, :, : len(texts)] = old.index_select(2, texts.to(self.device))
        self.cross.keep(samples)

    def _empty(self, texts: int, heads: int, width: int) -> Tensor:
        """Make a cache of zeros, ``(layers, 2, R, C, H, D)``; masked columns must hold finite numbers."""
        kind = self.device.type
        automatic = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if automatic else self.model.tokens.weight.dtype
        shape = (len(self.decoder.layers), 2, -(-texts // 4) * 4, self.columns, heads, width)
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def _tables(self, columns: int) -> None:
        """Make vectors, biases and rotations of all positions."""
        decoder, weight = self.decoder, self.model.tokens.weight
        absolute = decoder.embedded.positions
        self._vectors = None if absolute is None else absolute(weight[:1, None].expand(1, columns, -1))
        distances = torch.arange(self.columns, device=self.device)
        bias = decoder.bias
        self._biases = None if bias is None else [bias(-distances, layer) for _, layer in self._kinds]  # (H, C) each
        context = Context()
        if decoder.rotary is not None:
            rotation, local = decoder.rotary.rotations(self.columns, decoder.head_width, self.device)
            context = Context(rotation=rotation, local_rotation=local)
        self._rotations = [context.rotation_of(pattern.local) for pattern, _ in self._kinds]

    def where(self, at: Tensor, columns: int) -> Positions:
        """Make the masks, biases and rotations of ``(R, L)`` positions for the first ``columns``."""
        queries, keys = at[:, :, None], torch.arange(columns, device=self.device)
        masks = [pattern.mask_mod(queries, keys, columns)[:, None] for pattern, _ in self._kinds]  # (R, 1, L, C)
        if self._biases is not None:
            distances = (queries - keys).clamp(min=0)
            biases = [bias[:, distances].transpose(0, 1) for bias in self._biases]  # (R, H, L, C) each
            masks = [
                bias.masked_fill(~mask, float("-inf")).to(self.cache.dtype)
                for bias, mask in zip(biases, masks, strict=True)
            ]
        places = at.flatten()
        rotations = [each if each is None else (each[0][places], each[1][places]) for each in self._rotations]
        return Positions(at, tuple(masks), tuple(rotations))

    def run(self, tokens: Tensor, where: Positions, cache: Tensor, cross: Cross) -> Tensor:
        """Run the layers on ``(R, L, d)`` token vectors, and write keys and values into the cache; ``(R, L, d)``."""
        embedded = self.decoder.embedded
        x = tokens * embedded.scale if embedded.scale != 1.0 else tokens
        if self._vectors is not None:
            x = x + self._vectors[where.at]
        x = embedded.norm(x)
        for index, layer in enumerate(self.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            own = functools.partial(self._attend, layer, index, where, cache[index], cross)
            x = layer.attention_residual(x, own)
            for crossing in layer.crossings():
                x = crossing.residual(x, functools.partial(_attend_across, index, crossing, cross))
            x = layer.feed_forward_residual(x, layer.feed_forward)
        return self.decoder.norm(x)

    def _attend(
        self, layer: DecoderLayer, index: int, where: Positions, cache: Tensor, cross: Cross, x: Tensor
    ) -> Tensor:
        """Write keys and values of ``(R, L, d)`` into the cache ``(2, R, C, heads, D)``, then attend to it."""
        attention, kind = layer.attention, self._kind_of[index]
        rows, length = x.shape[:2]
        mask, rotation = where.masks[kind], where.rotations[kind]
        q, k, v = attention.project(x)  # (R, L, heads, D)
        if rotation is not None:
            q, k = (rotate(part.reshape(1, rows * length, *part.shape[2:]), rotation).view_as(part) for part in (q, k))
        every = torch.arange(rows, device=x.device)[:, None]
        cache[0][every, where.at] = k.to(cache.dtype)
        cache[1][every, where.at] = v.to(cache.dtype)
        cached_k, cached_v = cache.transpose(2, 3)  # (R, heads, C, D)
        if layer.merged:
            own = attend_part(q.transpose(1, 2), cached_k, cached_v, mask, attention.scale)
            beside = (part.transpose(1, 2) for part in cross(index, False, q, attention.scale, True))
            mixed = merge(own, Part(*beside))
        else:
            mixed = F.scaled_dot_product_attention(
                q.transpose(1, 2), cached_k, cached_v, attn_mask=mask, scale=attention.scale,
                enable_gqa=attention.grouped,
            )  # fmt: skip
        return attention.out(mixed.transpose(1, 2).flatten(2))  # from (R, H, L, D)

    def _prefill(self, sample: int, ids: np.ndarray) -> None:
        """Decode a prompt in one pass, and give all texts of the sample its keys and values."""
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
        columns = -(-len(ids) // GRAIN) * GRAIN
        cache = torch.zeros_like(self.cache[:, :, :1, :columns])
        where = self.where(torch.arange(len(ids), device=self.device)[None], columns)

        self.run(self.model.tokens(tokens), where, cache, functools.partial(self.cross.attend_alone, sample))
        first = sample * self.cross.beams
        self.cache[:, :, first : first + self.cross.beams, :columns] = cache


def _attend_across(index: int, crossing: Crossing, cross: Cross, x: Tensor) -> Tensor:
    """Attend from ``(R, L, d)`` states to the encoder's; returns the same shape."""
    attention = crossing.attention
    (mixed,) = cross(index, crossing.extra, attention.queries(x), attention.scale, False)
    return attention.out(mixed.flatten(2))
