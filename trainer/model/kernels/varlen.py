"""Attention over packed groups of unequal length, so that padding and masks cost nothing.

A plan assigns queries and keys to groups; every query attends to all keys of its group, and to no others. The kernel is
FlashAttention's (Dao, arXiv:2307.08691), from ``torch.nn.attention.varlen``. It has no CPU version, but plans are also
made, and tested, on a CPU. Every query is in one group only, because merging groups by their log-sum-exp is not
supported by the kernel's backward pass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor

from trainer.model.host import sent

Kernel = Callable[..., Tensor]

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # an older torch
    AVAILABLE = False
else:
    AVAILABLE = "scale" in inspect.signature(varlen_attn).parameters  # missing in its first version


class Plan(NamedTuple):
    """N groups of queries and keys.

    Attributes:
        queries: ``(Tq,)`` int64, indices into the flattened ``(B * Lq)`` of the queries that have keys, group by group;
            None for all queries in order. Other queries get zeros.
        keys: ``(Tk,)`` int64, likewise; a key may be in several groups.
        cu_queries, cu_keys: ``(N + 1,)`` int32, start of each group and end of the last one.
        max_queries, max_keys: upper bounds of the group lengths.
    """

    queries: Tensor | None
    keys: Tensor | None
    cu_queries: Tensor
    cu_keys: Tensor
    max_queries: int
    max_keys: int

    def on(self, device: torch.device) -> Plan:
        """Return the plan with its tensors on ``device``."""
        return self._replace(
            queries=None if self.queries is None else sent(self.queries, device),
            keys=None if self.keys is None else sent(self.keys, device),
            cu_queries=sent(self.cu_queries, device),
            cu_keys=sent(self.cu_keys, device),
        )


class Side(NamedTuple):
    """Queries or keys before they are sorted.

    Attributes:
        group: ``(T,)`` int64, the group of each entry; -1 for none.
        place: ``(T,)`` int64, the index of each entry; None if entry i has index i.
        longest: upper bound of the group lengths.
        sorted: True if groups ascend without any -1, and every group also has entries on the other side.
    """

    group: Tensor
    place: Tensor | None
    longest: int
    sorted: bool = False


def pack(queries: Side, keys: Side, groups: int) -> Plan:
    """Sort queries and keys by group; groups without queries or without keys are dropped."""
    query_counts, key_counts = (_counts(side.group, groups) for side in (queries, keys))
    alive = (query_counts > 0) & (key_counts > 0)  # (N,)
    return Plan(
        _order(queries, alive),
        _order(keys, alive),
        _starts(query_counts * alive),
        _starts(key_counts * alive),
        queries.longest,
        keys.longest,
    )


def attend(
    plan: Plan, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, kernel: Kernel | None = None
) -> Tensor:
    """Attend within the groups of a plan.

    Args:
        plan: plan for these lengths.
        q: ``(B, Lq, H, D)``, float16 or bfloat16.
        k, v: ``(B, Lk, H, D)``.
        scale: factor of the scores; None is 1 / sqrt(D).
        kernel: function with the arguments of ``varlen_attn``, the default.

    Returns:
        ``(B, Lq, H, D)``; zeros for queries in no group.
    """
    rows = q.flatten(0, 1)  # (B Lq, H, D); a view of packed projections
    if plan.queries is not None and not len(plan.queries):
        return q.masked_fill(q.new_ones((), dtype=torch.bool), 0.0)
    mixed = (kernel or cast(Kernel, varlen_attn))(
        _take(rows, plan.queries),
        _take(k.flatten(0, 1), plan.keys),
        _take(v.flatten(0, 1), plan.keys),
        plan.cu_queries,
        plan.cu_keys,
        plan.max_queries,
        plan.max_keys,
        scale=scale,
    )
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
    zero = counts.new_zeros(1)
    return torch.cat([zero, counts.cumsum(0)]).int()


def _order(side: Side, alive: Tensor) -> Tensor | None:
    if side.sorted and side.place is None:
        return None
    used = (side.group >= 0) & alive[side.group.clamp(min=0)]
    found = used.nonzero().squeeze(1)
    found = found[side.group[found].argsort(stable=True)]
    return found if side.place is None else side.place[found]
