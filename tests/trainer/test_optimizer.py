from __future__ import annotations

import pytest
import torch
from torch import nn

from corpora.errors import FarspanError
from trainer.optimizer import OptimizerConfig, ScheduleConfig, build_optimizer, learning_rate_factor


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (0, 1 / 500),
        (249, 0.5),
        (499, 1.0),
        (500, 1.0),
        (50_250, 0.5),
        (99_999, 1 / 99_500),
        (100_000, 0.0),
        (100_001, 0.0),
    ],
)
def test_bart_ls_schedule(step, factor):
    assert learning_rate_factor(step, 100_000, ScheduleConfig()) == pytest.approx(factor, abs=1e-12)


def test_power_end_and_no_warmup():
    schedule = ScheduleConfig(warmup_steps=0, power=2.0, end=0.1)
    assert [learning_rate_factor(step, 4, schedule) for step in range(5)] == pytest.approx(
        [1.0, 0.1 + 0.9 * 0.5625, 0.1 + 0.9 * 0.25, 0.1 + 0.9 * 0.0625, 0.1]
    )


def test_norms_and_biases_do_not_decay():
    model = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    values = {name: parameter.unique().item() for name, parameter in model.named_parameters()}
    decayed = pytest.approx(1 - 0.1 * 0.5)
    assert values == {
        "0.weight": decayed, "1.weight": decayed, "1.bias": 1.0, "2.weight": 1.0, "2.bias": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": 0.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"weight_decay": -1.0}, {"clip_norm": -1.0}],
)
def test_bad_optimizers_are_refused(options):
    with pytest.raises(FarspanError, match="optimizer"):
        OptimizerConfig(**options)


@pytest.mark.parametrize("options", [{"warmup_steps": -1}, {"power": -1.0}, {"end": 2.0}])
def test_bad_schedules_are_refused(options):
    with pytest.raises(FarspanError, match="schedule"):
        ScheduleConfig(**options)
