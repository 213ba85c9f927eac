"""A window with a reach to either side, in groups of queries that share a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from corpora.errors import FarspanError
from trainer.model.context import Context
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Span(Pattern):
    """Position i attends to the positions from ``i - left`` to ``i + right``.

    Attributes:
        left: positions before the own one.
        right: positions after it; 0 in a decoder.
    """

    left: int = 255
    right: int = 256
    pattern: Literal["span"] = "span"
    uses_flex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if min(self.left, self.right) < 0:
            raise FarspanError(
                f"attention pattern span: left is {self.left} and right is {self.right}; both must be at least 0"
            )

    @property
    def local(self) -> bool:
        return True

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        return attend_span(q, k, v, context, self.left, self.right, dropout=dropout, scale=scale)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return (query - key <= self.left) & (key - query <= self.right)

    def flops(self, length: int, width: int) -> int:
        return 4 * width * count_pairs(length, self.left, self.right)


def count_pairs(length: int, left: int, right: int) -> int:
    """Count the pairs of a query and a key from ``left`` before it to ``right`` after it."""
    left, right = min(left, length - 1), min(right, length - 1)
    return length * (left + right + 1) - (left * (left + 1) + right * (right + 1)) // 2


class GlobalKeys(NamedTuple):
    """Keys and values of global positions, ``(B, G, H, D)``, visible to all queries, and their ``(B, G)`` masks."""

    k: Tensor
    v: Tensor
    padding_mask: Tensor
    segments: Tensor | None


class _Part(NamedTuple):
    """Consecutive groups of ``size`` queries, and the keys that each group may attend to.

    The first group is ``[start, start + size)`` and its keys are ``[first_key, first_key + reach)``; each further group
    and its keys are ``size`` to the right.
    """

    start: int
    groups: int
    size: int
    first_key: int
    reach: int


def attend_span(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    left: int,
    right: int,
    shown: GlobalKeys | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Attend from each position to those from ``left`` before it to ``right`` after it, and to the keys ``shown``.

    Time and memory grow linearly with the length. Arguments and result are those of ``Pattern.attend``.
    """
    near = Span(left, right)
    parts = [_attend_part(part, near, q, k, v, context, shown, dropout, scale) for part in _parts(q.shape[1], near)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _parts(length: int, span: Span) -> list[_Part]:
    """Return groups as large as the longer reach, and groups of other sizes at both ends.

    Thus no key is padding of a group, and all inner groups share one mask.
    """
    left, right = span.left, span.right
    size = max(left, right, 1)
    inner = (length - right) // size - 1
    if inner < 1:
        return [_Part(0, 1, length, 0, length)]
    last = (inner + 1) * size
    parts = [
        _Part(0, 1, size, 0, size + right),
        _Part(size, inner, size, size - left, left + size + right),
        _Part(last, 1, length - last, last - left, length - last + left),
    ]
    return parts if last < length else parts[:2]


def _attend_part(
    part: _Part,
    span: Span,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    context: Context,
    shown: GlobalKeys | None,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """Attend from the queries of ``part``; returns ``(B, groups * size, H, D)``."""
    start, groups, size, first_key, reach = part

    def queries(x: Tensor) -> Tensor:  # (B, L, ...) -> (B n, Q, ...)
        return x[:, start : start + groups * size].unflatten(1, (groups, size)).flatten(0, 1)

    def keys(x: Tensor) -> Tensor:  # (B, L, ...) -> (B n, K, ...), overlapping; a view if B is 1
        stop = first_key + reach + (groups - 1) * size
        return x[:, first_key:stop].unfold(1, reach, size).movedim(-1, 2).flatten(0, 1)

    query_segments = None if context.segments is None else queries(context.segments)
    key_segments = None if context.segments is None else keys(context.segments)
    mask = mask_other_documents(
        None if context.padding_mask is None else keys(context.padding_mask), query_segments, key_segments
    )
    k_seen, v_seen, bias = keys(k), keys(v), None
    if max(start + size - 1 - first_key - span.left, first_key + reach - 1 - start - span.right) > 0:
        places = torch.arange(first_key, first_key + reach, device=q.device)
        near = span.mask_mod(torch.arange(start, start + size, device=q.device)[:, None], places, q.shape[1])  # (Q, K)
        if mask is None:
            # Every query attends to itself, so each has a key.
            bias = torch.zeros_like(near, dtype=q.dtype).masked_fill(~near, float("-inf"))[None, None]
        else:
            mask = near & mask  # (B n, Q, K)
    if shown and mask is not None:  # with global positions there is always a mask
        beside_segments = None if shown.segments is None else _repeat(shown.segments, groups)
        beside = mask_other_documents(_repeat(shown.padding_mask, groups), query_segments, beside_segments)
        assert beside is not None
        mask = torch.cat([mask.expand(-1, size, -1), beside.expand(-1, size, -1)], -1)  # (B n, Q, K + G)
        k_seen = torch.cat([k_seen, _repeat(shown.k, groups)], 1)
        v_seen = torch.cat([v_seen, _repeat(shown.v, groups)], 1)
    mixed = attend(queries(q), k_seen, v_seen, mask, bias, dropout=dropout, scale=scale)
    return mixed.unflatten(0, (-1, groups)).flatten(1, 2)


def _repeat(x: Tensor, groups: int) -> Tensor:
    """Repeat each row n times: ``(B, ...)`` to ``(B n, ...)``."""
    return x[:, None].expand(-1, groups, *x.shape[1:]).flatten(0, 1)
