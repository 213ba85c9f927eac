"""Incremental decoding: one token at a time, with cached keys and values of earlier positions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.generation.cross_cache import GRAIN, CrossCache
from trainer.model.decoder import Crossing, DecoderLayer
from trainer.model.layers.attention import SelfAttention
from trainer.model.positions import rotate
from trainer.model.seq2seq import Seq2Seq

Cross = Callable[[int, Crossing, Tensor], Tensor]
"""Function of a layer's index, one of its cross-attentions and hidden states that returns the attention's output."""


class Positions(NamedTuple):
    """Positions of the tokens in one pass.

    Attributes:
        at: positions, ``(R, L)`` int64.
        mask: ``(R, 1, L, C)`` bool, or ``(R, H, L, C)`` biases, over the first C cached columns.
        rotation: cosines and sines of rotary positions, ``(R L, D)`` each; None for other positions.
    """

    at: Tensor
    mask: Tensor
    rotation: tuple[Tensor, Tensor] | None


class CachedDecoder:
    """Decoder states of ``n * beams`` texts in progress.

    Rows are padded to a multiple of 4, so that no text's result depends on the number of texts.
    """

    def __init__(
        self, model: Seq2Seq, cross: CrossCache, prefixes: list[np.ndarray], columns: int, compiled: bool = False
    ) -> None:
        self.model, self.decoder, self.cross = model, model.decoder, cross
        self.device = model.tokens.weight.device
        self.columns = -(-columns // GRAIN) * GRAIN
        self.compiled = compiled
        self._tables(columns)
        attention = self.decoder.layers[0].attention
        assert isinstance(attention, SelfAttention)
        width = attention.out.in_features // attention.heads
        self.cache = self._empty(len(prefixes) * cross.beams, attention.heads, width)
        for sample, prefix in enumerate(prefixes):
            if len(prefix) > 1:
                self._prefill(sample, prefix[:-1])

    def step(self, tokens: Tensor, positions: Tensor, last: int) -> Tensor:
        """Append a token to every text; returns ``(n * beams, V)`` logits of the next token.

        ``tokens`` and their ``positions`` are ``(n * beams,)`` int64; the start id has position 0, the largest is
        ``last``.
        """
        spare = self.cache.shape[2] - len(tokens)
        tokens, positions = F.pad(tokens, (0, spare)), F.pad(positions, (0, spare))
        if self.compiled:
            return _compile_step()(self, tokens, positions, self.columns)[: len(tokens) - spare]
        return _step(self, tokens, positions, -(-(last + 1) // GRAIN) * GRAIN)[: len(tokens) - spare]

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
        self._biases = None if decoder.bias is None else decoder.bias(-distances)  # (H, C), by distance
        self._rotation = (
            None if decoder.rotary is None else decoder.rotary.rotation(self.columns, decoder.head_width, self.device)
        )

    def where(self, at: Tensor, columns: int) -> Positions:
        """Make the masks, biases and rotations of ``(R, L)`` positions for the first ``columns``."""
        distances = at[:, :, None] - torch.arange(columns, device=self.device)  # (R, L, C)
        mask = distances[:, None] >= 0
        if self._biases is not None:
            biases = self._biases[:, distances.clamp(min=0)].transpose(0, 1)  # (R, H, L, C)
            mask = biases.masked_fill(~mask, float("-inf")).to(self.cache.dtype)
        rotation = None
        if self._rotation is not None:
            cosines, sines = (table[at.flatten()] for table in self._rotation)
            rotation = (cosines, sines)
        return Positions(at, mask, rotation)

    def run(self, tokens: Tensor, where: Positions, cache: Tensor, cross: Cross) -> Tensor:
        """Run the layers on ``(R, L, d)`` token vectors, and write keys and values into the cache.

        Returns:
            Hidden states, ``(R, L, d)``.
        """
        embedded = self.decoder.embedded
        x = tokens * embedded.scale if embedded.scale != 1.0 else tokens
        if self._vectors is not None:
            x = x + self._vectors[where.at]
        x = embedded.norm(x)
        for index, layer in enumerate(self.decoder.layers):
            assert isinstance(layer, DecoderLayer)
            x = self._layer(x, index, layer, where, cache[index], cross)
        return self.decoder.norm(x)

    def _layer(
        self, x: Tensor, index: int, layer: DecoderLayer, where: Positions, cache: Tensor, cross: Cross
    ) -> Tensor:
        x = layer.attention_residual(x, lambda h: _attend(layer.attention, h, where, cache))
        for crossing in layer.crossings():
            x = crossing.residual(x, functools.partial(cross, index, crossing))
        return layer.feed_forward_residual(x, layer.feed_forward)

    def _prefill(self, sample: int, ids: np.ndarray) -> None:
        """Decode a prompt in one pass, and give all texts of the sample its keys and values."""
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
        columns = -(-len(ids) // GRAIN) * GRAIN
        cache = torch.zeros_like(self.cache[:, :, :1, :columns])
        where = self.where(torch.arange(len(ids), device=self.device)[None], columns)

        self.run(self.model.tokens(tokens), where, cache, functools.partial(self.cross.attend_alone, sample))
        first = sample * self.cross.beams
        self.cache[:, :, first : first + self.cross.beams, :columns] = cache


def _step(decoder: CachedDecoder, tokens: Tensor, positions: Tensor, columns: int) -> Tensor:
    """Append ``(R,)`` tokens at ``(R,)`` positions below ``columns``, and return ``(R, V)`` logits."""
    x = decoder.model.tokens(tokens)[:, None]
    where = decoder.where(positions[:, None], columns)
    hidden = decoder.run(x, where, decoder.cache[..., :columns, :, :], decoder.cross.attend)
    return decoder.model.logits(hidden[:, 0])


@functools.cache
def _compile_step() -> Callable[[CachedDecoder, Tensor, Tensor, int], Tensor]:
    """One compiled function for all decoders, so that batches of equal shapes share its code."""
    return torch.compile(_step, dynamic=False)


def _attend(attention: SelfAttention, x: Tensor, where: Positions, cache: Tensor) -> Tensor:
    """Write keys and values of ``(R, L, d)`` into the cache ``(2, R, C, H, D)``, then attend to it."""
    rows, length = x.shape[:2]
    q, k, v = attention.qkv(x).unflatten(-1, (3, attention.heads, -1)).unbind(2)  # (R, L, H, D)
    if where.rotation is not None:
        q, k = (
            rotate(part.reshape(1, rows * length, *part.shape[2:]), where.rotation).view_as(part) for part in (q, k)
        )
    every = torch.arange(rows, device=x.device)[:, None]
    cache[0][every, where.at] = k.to(cache.dtype)
    cache[1][every, where.at] = v.to(cache.dtype)
    cached_k, cached_v = cache.transpose(2, 3)  # (R, H, C, D)
    mixed = F.scaled_dot_product_attention(
        q.transpose(1, 2), cached_k, cached_v, attn_mask=where.mask, scale=attention.scale
    )  # (R, H, L, D)
    return attention.out(mixed.transpose(1, 2).flatten(2))
