"""Adafactor for whole and for sharded parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Adafactor(torch.optim.Optimizer):
    """Adam without momentum, and with second moments of matrices kept as one number a row and one a column.

    Shazeer & Stern 2018 (arXiv:1804.04235), algorithm 4: update ``t`` moves a parameter by ``min(lr, 1 / sqrt(t))``
    times its own root mean square, or ``scale`` where that is smaller. ``torch.optim.Adafactor`` computes the same, but
    neither sharded parameters nor without waiting for the device.

    Args:
        params: parameters, or groups of them.
        lr: the largest relative step.
        decay: second moments are averaged with weight ``t ** decay`` for the newest.
        scale: least root mean square of a parameter that steps are relative to.
        clip: largest root mean square of an update before it is scaled.
        weight_decay: decoupled, as in AdamW.
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
        super().__init__(params, {"lr": lr, "decay": decay, "scale": scale, "clip": clip, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _update(parameter, parameter.grad, self.state[parameter], group)


def _update(parameter: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    moments = _moments(grad)
    if not state:
        state["step"] = torch.zeros(())
        state |= {name: torch.zeros_like(moment) for name, moment in moments.items()}
    state["step"] += 1
    step, eps = state["step"].item(), torch.finfo(parameter.dtype).eps
    for name, moment in moments.items():
        state[name].lerp_(moment, step ** group["decay"])
    variance = state["variance"] if grad.dim() < 2 else _product(state["rows"], state["columns"], eps)
    update = grad * variance.clamp(min=eps * eps).rsqrt()
    clipped = (_root_mean_square(update) / group["clip"]).clamp(min=1.0)
    size = _root_mean_square(parameter).clamp(min=group["scale"]) * min(group["lr"], step**-0.5)
    parameter.mul_(1 - group["lr"] * group["weight_decay"])
    parameter.sub_(update * (size / clipped))


def _moments(grad: Tensor) -> dict[str, Tensor]:
    """Of a vector ``(C,)`` all; of a matrix ``(R, C)`` rows ``(R, 1)`` and columns ``(1, C)``."""
    squares = grad.square()
    if grad.dim() < 2:
        return {"variance": squares}
    return {"rows": _mean(squares, -1), "columns": _mean(squares, -2)}


def _product(rows: Tensor, columns: Tensor, eps: float) -> Tensor:
    """The ``(R, C)`` of rank 1 that has these means."""
    return rows * columns / _mean(rows, -2).clamp(min=eps)


def _mean(values: Tensor, dim: int) -> Tensor:
    # By the sum, because a mean of means is wrong where shards are uneven.
    return values.sum(dim, keepdim=True) / values.shape[dim]


def _root_mean_square(values: Tensor) -> Tensor:
    return (values.square().sum() / values.numel()).sqrt()
