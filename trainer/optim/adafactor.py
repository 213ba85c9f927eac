"""Adafactor for unsharded and sharded parameters (arXiv:1804.04235)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

_EPS = 1e-30
"""Constant added to squared gradients (algorithm 4), so that a zero gradient gives a zero step."""


class Adafactor(torch.optim.Optimizer):
    """Adafactor: Adam without momentum, whose second moments of a matrix are one number per row and per column.

    Shazeer & Stern 2018 (arXiv:1804.04235), algorithm 4: update ``t`` moves a parameter by ``min(lr, 1 / sqrt(t))``
    times its root mean square, but at least ``scale``. ``torch.optim.Adafactor`` supports neither sharded parameters
    nor stacked projections, and its ``eps`` of 1e-7 dominates the gradients of a large batch.

    A parameter group may have a ``count``, the number of projections stacked in each of its parameters along
    dimension 0; each projection is scaled and clipped like a separate parameter.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        decay: float = -0.8,
        scale: float = 1e-3,
        clip: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        options = {"lr": lr, "decay": decay, "scale": scale, "clip": clip, "weight_decay": weight_decay, "count": 1}
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _update(parameter, parameter.grad, self.state[parameter], group)


def _update(parameter: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    if not state:
        state |= _initial_state(parameter, group["count"])
    state["step"] += 1
    step, weights, gradients = state["step"].item(), _local(parameter), _local(grad)
    rows = _rows_of_projections(parameter, group["count"])
    size = parameter.numel() / group["count"]  # elements per projection
    squares = gradients.square() + _EPS
    newest = step ** group["decay"]
    if parameter.dim() < 2:
        variance = _local(state["variance"]).lerp_(squares, newest)
        update = gradients * variance.rsqrt()
        (scale,) = _sum(parameter, [_sums(weights.square(), rows)])
    else:
        row_means = _local(state["rows"]).lerp_(squares.mean(-1, keepdim=True), newest)
        scale, total, columns = _sum(
            parameter,
            [_sums(weights.square(), rows), _sums(row_means, rows), torch.stack([squares[own].sum(0) for own in rows])],
        )
        height = parameter.shape[0] / group["count"]
        state["columns"].lerp_(columns / height, newest)
        update = torch.empty_like(gradients)
        for projection, own in enumerate(rows):
            relative = row_means[own] / (total[projection] / height)
            update[own] = gradients[own] * relative.rsqrt() * state["columns"][projection].rsqrt()
    (length,) = _sum(parameter, [_sums(update.square(), rows)])
    clipped = ((length / size).sqrt() / group["clip"]).clamp(min=1.0)
    steps = (scale / size).sqrt().clamp(min=group["scale"]) * min(group["lr"], step**-0.5) / clipped
    weights.mul_(1 - group["lr"] * group["weight_decay"])
    for projection, own in enumerate(rows):
        weights[own] -= update[own] * steps[projection]


def _initial_state(parameter: Tensor, count: int) -> dict[str, Tensor]:
    """Make the state: ``variance`` of a vector ``(R,)``, or ``rows`` ``(R, 1)`` and ``columns`` ``(count, C)``.

    ``variance`` and ``rows`` are sharded like the parameter; ``columns`` is complete on every rank.
    """
    state = {"step": torch.zeros(())}
    if parameter.dim() < 2:
        return {**state, "variance": torch.zeros_like(parameter)}
    columns = torch.zeros(count, parameter.shape[1], dtype=parameter.dtype, device=parameter.device)
    return {**state, "rows": torch.zeros_like(parameter.sum(-1, keepdim=True)), "columns": columns}


def _rows_of_projections(parameter: Tensor, count: int) -> list[slice]:
    """Return this rank's rows of each projection, counted from the rank's first row."""
    height, first, held = parameter.shape[0] // count, 0, parameter.shape[0]
    if isinstance(parameter, DTensor):
        for dimension, placement in enumerate(parameter.placements):
            if placement.is_shard():
                # partitioned as by torch.chunk: the last ranks may hold fewer rows, or none
                shard = -(-parameter.shape[0] // parameter.device_mesh.size(dimension))
                first = shard * parameter.device_mesh.get_local_rank(dimension)
        held = parameter.to_local().shape[0]
    edges = [min(max(number * height - first, 0), held) for number in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _sums(values: Tensor, rows: list[slice]) -> Tensor:
    """Sum ``values`` over the rows of each projection, ``(count,)``."""
    return torch.stack([values[own].sum() for own in rows])


def _sum(parameter: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """Sum ``parts`` over the ranks that share ``parameter``, in one all-reduce."""
    if not isinstance(parameter, DTensor):
        return parts
    message = torch.cat([part.flatten() for part in parts])
    for dimension, placement in enumerate(parameter.placements):
        if placement.is_shard():
            dist.all_reduce(message, group=parameter.device_mesh.get_group(dimension))
    return [flat.view_as(part) for flat, part in zip(message.split([p.numel() for p in parts]), parts, strict=True)]
