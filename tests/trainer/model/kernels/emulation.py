"""A plain ``varlen_attn`` for a CPU, written from its documentation."""

from __future__ import annotations

import torch


def loop(q, k, v, cu_queries, cu_keys, max_queries, max_keys, *, scale=None):
    """Group by group, with all that the kernel asks of its arguments."""
    parts = []
    assert len(cu_queries) == len(cu_keys)
    assert cu_queries.dtype == cu_keys.dtype == torch.int32
    assert (cu_queries[-1], cu_keys[-1]) == (len(q), len(k))
    for first, last, first_key, last_key in zip(cu_queries, cu_queries[1:], cu_keys, cu_keys[1:], strict=False):
        assert (first == last) == (first_key == last_key)  # nothing is emitted that has nothing to see
        assert last - first <= max_queries
        assert last_key - first_key <= max_keys
        group, keys = slice(first, last), slice(first_key, last_key)
        scores = torch.einsum("qhd,khd->hqk", q[group], k[keys]) * (scale or q.shape[-1] ** -0.5)
        parts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[keys]))
    return torch.cat(parts)
