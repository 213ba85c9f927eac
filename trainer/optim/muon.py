"""Muon for the hidden matrices of a model, with AdamW for all other parameters."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.model.layers.heads import projections_in

_MOMENTUM = 0.95
_STEPS = 5
_COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Of Jordan et al. 2024: the quintic polynomial that moves small singular values towards 1 fastest."""


class Muon(torch.optim.AdamW):
    """Muon: momentum, orthogonalised (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon).

    A parameter group with a ``count`` above 0 has matrices of so many projections, stacked along dimension 0. Each
    projection's Nesterov momentum is orthogonalised alone, and scaled by ``0.2 * sqrt(max(rows, columns))``, so that
    learning rate and decay are those of AdamW (Liu et al. 2025, arXiv:2502.16982, equation 4). Groups with ``count`` 0
    take AdamW's steps. Sharded matrices are gathered for the update, one after another.

    ``torch.optim.Muon`` treats stacked projections as one matrix, and each shard as a matrix.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        every = self.param_groups
        for group in every:
            for parameter in group["params"] if group["count"] else ():
                if parameter.grad is not None:
                    _update(parameter, parameter.grad, self.state[parameter], group, getattr(self, "found_inf", None))
        self.param_groups = [group for group in every if not group["count"]]
        try:
            super().step()
        finally:
            self.param_groups = every


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """Map the weights that Muon updates to the number of projections stacked in them.

    These are the weights of linear layers, without the projection to the vocabulary.
    """
    output = getattr(model, "output", None)
    linear = {
        module.weight: None for module in model.modules() if isinstance(module, nn.Linear) and module is not output
    }
    return {parameter: count for parameter, count in projections_in(model).items() if parameter in linear}


def _update(parameter: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any], skip: Tensor | None) -> None:
    """Take a step; if ``skip`` is 1, write back the old values, which needs no look at the device."""
    if not state:
        # AdamW reads ``step`` of every parameter when its state is loaded
        state |= {"step": torch.zeros((), device=parameter.device), "momentum": torch.zeros_like(parameter)}
    state["step"] += 1 if skip is None else 1 - skip
    momentum = state["momentum"] * _MOMENTUM + grad * (1 - _MOMENTUM)
    ahead = grad * (1 - _MOMENTUM) + momentum * _MOMENTUM
    whole = ahead.full_tensor() if isinstance(ahead, DTensor) else ahead
    projections = whole.chunk(group["count"])
    update = torch.cat([_orthogonalise(matrix) for matrix in projections]).to(parameter.dtype)
    if isinstance(parameter, DTensor):
        update = distribute_tensor(update, parameter.device_mesh, parameter.placements, src_data_rank=None)
    scale = 0.2 * math.sqrt(max(projections[0].shape))
    weights = parameter * (1 - group["lr"] * group["weight_decay"]) - update * (group["lr"] * scale)
    for old, new in ((state["momentum"], momentum), (parameter, weights)):
        local, values = (one.to_local() if isinstance(one, DTensor) else one for one in (old, new))
        local.copy_(values if skip is None else torch.where(skip > 0, local, values))


def _orthogonalise(matrix: Tensor) -> Tensor:
    """Move the singular values of a matrix to about 1 (Newton-Schulz, in bfloat16 as published)."""
    a, b, c = _COEFFICIENTS
    x = matrix.bfloat16()
    x = x.mT if matrix.shape[0] > matrix.shape[1] else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix.shape[0] > matrix.shape[1] else x
