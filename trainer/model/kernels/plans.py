"""Patterns as groups of queries and keys for ``varlen.attend``, in integer tensors.

Documents that must not attend to each other are separate groups. Padding is in no group, so queries there get zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.host import on_host
from trainer.model.kernels.varlen import Plan, Side, pack


class Rows(NamedTuple):
    """The documents of a batch.

    Attributes:
        document: ``(B, L)`` int64: 0, 1, ..., and -1 at padding.
        documents: upper bound of the number of documents in a row.
        whole: True if there is certainly no padding and only one document per row.
    """

    document: Tensor
    documents: int
    whole: bool


def rows_of(context: Context, batch: int, length: int, device: torch.device) -> Rows:
    """Return the documents of a context, on the host if known there, because they determine the sizes of plans."""
    padding_mask, segments = context.padding_mask, context.segments
    known = [on_host(x) for x in (padding_mask, segments) if x is not None]
    if all(x.device.type == "cpu" for x in known):
        device, padding_mask = torch.device("cpu"), None if padding_mask is None else on_host(padding_mask)
        segments = None if segments is None else on_host(segments)
    document = torch.zeros(batch, length, dtype=torch.int64, device=device) if segments is None else segments.long()
    if padding_mask is not None:
        document = document.masked_fill(~padding_mask, -1)
    return Rows(document, context.documents, padding_mask is None and segments is None)


def across(queries: Rows, keys: Rows) -> Plan:
    """Plan for queries that attend to the keys of their own document: full, cross- and pooled attention."""
    count = max(queries.documents, keys.documents)
    row, whole = _row(queries.document), queries.whole and keys.whole
    query_side, key_side = (
        Side(_group(row * count, rows).flatten(), None, rows.document.shape[1], whole) for rows in (queries, keys)
    )
    return pack(query_side, key_side, len(row) * count)


def blocks(rows: Rows, size: int) -> Plan:
    """Plan for positions i that attend to block ``i // size``."""
    batch, length = rows.document.shape
    parts = -(-length // size)
    first = (_row(rows.document) * parts + _places(rows) // size) * rows.documents  # (B, L)
    side = Side(_group(first, rows).flatten(), None, min(size, length), rows.whole)
    return pack(side, side, batch * parts * rows.documents)


def overlapping(rows: Rows, size: int) -> Plan:
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


def with_global_tokens(rows: Rows, size: int, shift: int, tokens: int) -> Plan:
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
    seen_group = (
        row[..., None] * parts + part
    ) * rows.documents + own  # (B, P, E): extra positions as keys of all parts
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
