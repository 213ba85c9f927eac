"""AdamW, its parameter groups, and the learning rate as a function of the step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from corpora.errors import FarspanError


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Adam with decoupled weight decay; without decay it is Adam. Defaults: BART-LS, appendix A.

    Attributes:
        learning_rate: at the end of the warm-up.
        betas, eps: of Adam.
        weight_decay: on matrices and tables; never on norms and biases.
        clip_norm: the gradient's global norm is cut to this; 0 for never.

    Raises:
        FarspanError: values with which nothing is learnt.
    """

    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    weight_decay: float = 0.01
    clip_norm: float = 0.1

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise FarspanError(f"optimizer.learning_rate is {self.learning_rate}; it must be above 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise FarspanError(f"optimizer.betas is {list(self.betas)}; both must lie in [0, 1)")
        if self.eps <= 0 or self.weight_decay < 0 or self.clip_norm < 0:
            raise FarspanError(
                f"optimizer: eps {self.eps} must be above 0, weight_decay {self.weight_decay} and "
                f"clip_norm {self.clip_norm} at least 0"
            )


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Linear warm-up, then polynomial decay over the rest of the run.

    Attributes:
        warmup_steps: steps until the full learning rate.
        power: of the decay; 1 is linear.
        end: the last learning rate as a share of the full one.

    Raises:
        FarspanError: negative values, an end outside [0, 1].
    """

    warmup_steps: int = 500
    power: float = 1.0
    end: float = 0.0

    def __post_init__(self) -> None:
        if self.warmup_steps < 0 or self.power < 0 or not 0 <= self.end <= 1:
            raise FarspanError(
                f"schedule: warmup_steps {self.warmup_steps} and power {self.power} must be at least 0, "
                f"end {self.end} in [0, 1]"
            )


def learning_rate_factor(step: int, steps: int, schedule: ScheduleConfig) -> float:
    """The share of the full learning rate with which update ``step`` (counted from 0) of ``steps`` is made.

    Update ``warmup_steps - 1`` has the full rate; the update after the last one would have ``end``.
    """
    if step < schedule.warmup_steps:
        return (step + 1) / schedule.warmup_steps
    left = max(steps - step, 0) / max(steps - schedule.warmup_steps, 1)
    return schedule.end + (1.0 - schedule.end) * left**schedule.power


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over two groups: matrices and tables with decay, norms and biases without."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, eps=config.eps, fused=True)
