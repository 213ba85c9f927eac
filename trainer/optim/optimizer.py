"""Optimizers and their parameter groups."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from corpora.errors import FarspanError
from trainer.model.layers.heads import projections_in
from trainer.optim.adafactor import Adafactor
from trainer.optim.muon import Muon, hidden_matrices


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Options of the optimizer; the defaults are those of BART-LS, appendix A.

    Attributes:
        name: ``adamw``; ``adam``, which adds the decay to the gradient; ``adafactor``, whose steps are
            ``min(learning_rate, 1 / sqrt(step))`` times the size of a parameter; a constant 1e-2 without warm-up gives
            T5's schedule; or ``muon``, which orthogonalises the steps of hidden matrices, with AdamW's learning rate
            and decay, and takes AdamW's steps elsewhere.
        learning_rate: learning rate after the warm-up.
        betas, eps: parameters of Adam and AdamW.
        weight_decay: decay of matrices and tables; norms and biases do not decay.
        clip_norm: maximum global norm of the gradient; 0 for no clipping.
    """

    name: Literal["adamw", "adam", "adafactor", "muon"] = "adamw"
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise FarspanError(f"optimizer.learning_rate is {self.learning_rate}; it must be above 0 and finite")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise FarspanError(f"optimizer.betas is {list(self.betas)}; both must lie in [0, 1)")
        if not (0 < self.eps < math.inf and 0 <= self.weight_decay < math.inf and self.clip_norm >= 0):
            raise FarspanError(
                f"optimizer: eps {self.eps} must be above 0, weight_decay {self.weight_decay} and "
                f"clip_norm {self.clip_norm} at least 0, eps and weight_decay finite"
            )


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Build the optimizer; weight decay applies to matrices and tables, not to norms and biases.

    Adafactor and Muon treat stacked projections separately, because their steps depend on whole weights.
    """
    decays = (True, config.weight_decay), (False, 0.0)
    if config.name == "adafactor":
        counts = projections_in(model)
        groups = [
            {"params": chosen, "weight_decay": decay, "count": count}
            for count in sorted(set(counts.values()))
            for matrices, decay in decays
            if (chosen := [p for p, stacked in counts.items() if stacked == count and (p.dim() > 1) == matrices])
        ]
        return Adafactor(groups, lr=config.learning_rate)
    hidden = hidden_matrices(model) if config.name == "muon" else {}
    parameters = [p for p in model.parameters() if p not in hidden]
    groups = [
        {"params": [p for p in parameters if (p.dim() > 1) == matrices], "weight_decay": decay}
        for matrices, decay in decays
    ]
    if config.name == "muon":
        groups = [{**group, "count": 0} for group in groups]
        for count in sorted(set(hidden.values())):
            chosen = [p for p, stacked in hidden.items() if stacked == count]
            groups.append({"params": chosen, "weight_decay": config.weight_decay, "count": count})
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "muon": Muon}[config.name]
    return kind(groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=True)


def advise_calmer_settings(precision: str | None) -> str:
    """Return the advice against values that are not finite, for messages."""
    cure = "lower optimizer.learning_rate" + (", set run.precision to fp32" if precision == "bf16" else "")
    return f"{cure} (a run with other values begins in a new run.directory)"
