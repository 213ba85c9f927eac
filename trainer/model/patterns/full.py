"""Full attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trainer.model.context import Context
from trainer.model.kernels import varlen
from trainer.model.kernels.varlen import Plan
from trainer.model.layers.attention import attend, mask_other_documents
from trainer.model.pattern import Pattern


@dataclass(frozen=True)
class Full(Pattern):
    """Every position attends to every position of its document."""

    pattern: Literal["full"] = "full"

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float = 0.0, scale: float | None = None
    ) -> Tensor:
        mask = mask_other_documents(context.padding_mask, context.segments, context.segments)
        return attend(q, k, v, mask, *context.biases, dropout=dropout, scale=scale)

    def offsets(self, length: int) -> tuple[Tensor, ...]:
        positions = torch.arange(length)
        return (positions - positions[:, None],)  # (L, L)

    def mask_mod(self, query: Tensor, key: Tensor, length: int) -> Tensor:
        return torch.ones_like(query + key, dtype=torch.bool)

    def plan(self, rows: varlen.Rows) -> Plan:
        return varlen.plan_documents(rows, rows)

    def flops(self, length: int, width: int) -> int:
        return 4 * length * length * width
