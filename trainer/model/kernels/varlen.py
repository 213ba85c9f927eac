"""Attention over packed groups of unequal length, so that padding and masks cost nothing.

A plan assigns queries and keys to groups; every query attends to all keys of its group, and to no others. Documents
that must not attend to each other are separate groups. Padding is in no group, so queries there get zeros.

The kernel is FlashAttention's (Dao, arXiv:2307.08691), from ``torch.nn.attention.varlen``. It has no CPU version, but
plans are also made, and tested, on a CPU. Every query is in one group only, because merging groups by their log-sum-exp
is not supported by the kernel's backward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor

from trainer.model.context import Context, number_documents, on_host, send


class Rows(NamedTuple):
    """The documents of a batch."""

    document: Tensor  # (B, L) int64: 0, 1, ..., and -1 at padding
    documents: int  # upper bound of the number of documents in a row
    whole: bool  # True if there is certainly no padding and only one document per row


def rows_of(context: Context, batch: int, length: int, device: torch.device) -> Rows:
    """Return the documents of a context, on the host if known there, because they determine the sizes of plans."""
    given = {"padding_mask": context.padding_mask, "segments": context.segments}
    known = {name: on_host(x) for name, x in given.items() if x is not None}
    if all(x.device.type == "cpu" for x in known.values()):
        device, context = torch.device("cpu"), context._replace(**known)
    return Rows(number_documents(context, batch, length, device), context.most_documents, not known)


def plan_documents(queries: Rows, keys: Rows) -> Plan:
    """Plan for queries that attend to the keys of their own document: full, cross- and pooled attention."""
    count = max(queries.documents, keys.documents)
    row, whole = _row(queries.document), queries.whole and keys.whole
    query_side, key_side = (
        Side(_group(row * count, rows).flatten(), None, rows.document.shape[1], whole) for rows in (queries, keys)
    )
    return pack(query_side, key_side, len(row) * count)


def plan_blocks(rows: Rows, size: int) -> Plan:
    """Plan for positions i that attend to block ``i // size``."""
    batch, length = rows.document.shape
    parts = -(-length // size)
    first = (_row(rows.document) * parts + _places(rows) // size) * rows.documents  # (B, L)
    side = Side(_group(first, rows).flatten(), None, min(size, length), rows.whole)
    return pack(side, side, batch * parts * rows.documents)


def plan_overlaps(rows: Rows, size: int) -> Plan:
    """Plan for blocks that attend to themselves and to the adjacent half of each neighbour; ``size`` is even."""
    batch, length = rows.document.shape
    parts = -(-length // size)
    row, place = _row(rows.document), _places(rows)
    block = place // size
    other = torch.where(place % size < size // 2, block - 1, block + 1)  # the other block that attends to the position
    group = _group((row * parts + block) * rows.documents, rows)
    inside = (other >= 0) & (other < parts)
    second = _group((row * parts + other) * rows.documents, rows).masked_fill(~inside, -1)
    at = (row * length + place).flatten()
    return pack(
        Side(group.flatten(), None, min(size, length), rows.whole),
        Side(torch.cat([group.flatten(), second.flatten()]), torch.cat([at, at]), min(2 * size, length)),
        batch * parts * rows.documents,
    )


def plan_global_tokens(rows: Rows, size: int, shift: int, tokens: int) -> Plan:
    """Plan for blocks ``(i + shift) // size`` and ``tokens`` extra positions per document.

    Blocks attend to themselves and to their document's extra positions, which attend to the whole document. Sequences
    are ``(B, E + L)`` with ``E = documents * tokens``, the extra positions of document 0 first.
    """
    batch, length = rows.document.shape
    device, extra = rows.document.device, rows.documents * tokens
    parts = 1 + (length - 1 + shift) // size + 1  # part 0 is the extra positions' own
    row = _row(rows.document)  # (B, 1)
    own = torch.arange(extra, device=device) // tokens  # (E,), the document of each extra position
    globals_group = row * parts * rows.documents + own  # (B, E)
    blocks_group = _group((row * parts + 1 + (_places(rows) + shift) // size) * rows.documents, rows)  # (B, L)
    whole_group = _group(row * parts * rows.documents, rows)  # (B, L): tokens as keys of the extra positions
    part = torch.arange(parts, device=device)[:, None]  # (P, 1)
    seen_group = (row[..., None] * parts + part) * rows.documents + own  # (B, P, E): extra positions, keys of all parts
    extra_at = row * (extra + length) + torch.arange(extra, device=device)  # (B, E)
    token_at = row * (extra + length) + extra + _places(rows)  # (B, L)
    keys = [
        (seen_group, extra_at[:, None].expand(-1, parts, -1)),
        (blocks_group, token_at),
        (whole_group, token_at),
    ]
    return pack(
        Side(torch.cat([globals_group, blocks_group], 1).flatten(), None, max(tokens, min(size, length)), rows.whole),
        Side(
            torch.cat([group.flatten() for group, _ in keys]),
            torch.cat([at.flatten() for _, at in keys]),
            tokens + length,
        ),
        batch * parts * rows.documents,
    )


def _row(document: Tensor) -> Tensor:
    return torch.arange(len(document), device=document.device)[:, None]  # (B, 1)


def _places(rows: Rows) -> Tensor:
    return torch.arange(rows.document.shape[1], device=rows.document.device)  # (L,)


def _group(first: Tensor, rows: Rows) -> Tensor:
    """Return the group of each position, ``first`` plus its document; ``(B, L)``, -1 at padding."""
    return (first + rows.document).masked_fill(rows.document < 0, -1)


Kernel = Callable[..., Tensor]

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # an older torch
    AVAILABLE = False
else:
    AVAILABLE = "scale" in inspect.signature(varlen_attn).parameters  # missing in its first version


class Plan(NamedTuple):
    """N groups of queries and keys.

    ``queries``, ``(Tq,)`` int64, are indices into the flattened ``(B * Lq)`` of the queries that have keys, group by
    group; None for all queries in order. Other queries get zeros. ``keys``, ``(Tk,)``, likewise; a key may be in
    several groups. ``cu_queries`` and ``cu_keys``, ``(N + 1,)`` int32, are each group's start and the last one's end.
    """

    queries: Tensor | None
    keys: Tensor | None
    cu_queries: Tensor
    cu_keys: Tensor
    max_queries: int  # upper bounds of the group lengths
    max_keys: int

    def on(self, device: torch.device) -> Plan:
        """Return the plan with its tensors on ``device``."""
        queries, keys = (None if x is None else send(x, device) for x in (self.queries, self.keys))
        cu_queries, cu_keys = send(self.cu_queries, device), send(self.cu_keys, device)
        return self._replace(queries=queries, keys=keys, cu_queries=cu_queries, cu_keys=cu_keys)


class Side(NamedTuple):
    """Queries or keys before they are sorted."""

    group: Tensor  # (T,) int64, the group of each entry; -1 for none
    place: Tensor | None  # (T,) int64, the index of each entry; None if entry i has index i
    longest: int  # upper bound of the group lengths
    sorted: bool = False  # True if groups ascend without any -1, and every group also has entries on the other side


def pack(queries: Side, keys: Side, groups: int) -> Plan:
    """Sort queries and keys by group; groups without queries or without keys are dropped."""
    query_counts, key_counts = (_counts(side.group, groups) for side in (queries, keys))
    alive = (query_counts > 0) & (key_counts > 0)  # (N,)
    orders = _order(queries, alive), _order(keys, alive)
    return Plan(*orders, _starts(query_counts * alive), _starts(key_counts * alive), queries.longest, keys.longest)


def attend(
    plan: Plan, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, kernel: Kernel | None = None
) -> Tensor:
    """Attend within the groups of a plan for these lengths; zeros for queries in no group.

    ``q`` is ``(B, Lq, H, D)``, float16 or bfloat16, ``k`` and ``v`` ``(B, Lk, H, D)``; ``scale`` None is 1 / sqrt(D).
    ``kernel`` has the arguments of ``varlen_attn``, the default.
    """
    rows = q.flatten(0, 1)  # (B Lq, H, D); a view of packed projections
    if plan.queries is not None and not len(plan.queries):
        return q.masked_fill(q.new_ones((), dtype=torch.bool), 0.0)
    taken = _take(rows, plan.queries), *(_take(x.flatten(0, 1), plan.keys) for x in (k, v))
    sizes = plan.cu_queries, plan.cu_keys, plan.max_queries, plan.max_keys
    grouped = {"enable_gqa": True} if k.shape[2] != q.shape[2] else {}
    mixed = (kernel or cast(Kernel, varlen_attn))(*taken, *sizes, scale=scale, **grouped)
    if plan.queries is not None:
        mixed = torch.zeros_like(rows).index_copy(0, plan.queries, mixed)
    return mixed.unflatten(0, q.shape[:2])


def _take(rows: Tensor, places: Tensor | None) -> Tensor:
    # Not index_select: the backward pass of plain indexing sums repeated rows in a fixed order and in float32.
    return rows if places is None else rows[places]


def _counts(group: Tensor, groups: int) -> Tensor:
    """``(N,)`` int64."""
    # slot 0 counts entries without a group; bincount would wait for the device
    ones = torch.ones_like(group)
    return torch.zeros(groups + 1, dtype=torch.int64, device=group.device).index_add(0, group + 1, ones)[1:]


def _starts(counts: Tensor) -> Tensor:
    """``(N + 1,)`` int32."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()


def _order(side: Side, alive: Tensor) -> Tensor | None:
    if side.sorted and side.place is None:
        return None
    used = (side.group >= 0) & alive[side.group.clamp(min=0)]
    found = used.nonzero().squeeze(1)
    found = found[side.group[found].argsort(stable=True)]
    return found if side.place is None else side.place[found]
