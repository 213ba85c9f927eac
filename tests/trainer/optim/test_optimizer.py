from __future__ import annotations

import pytest
import torch
from torch import nn

from corpora.errors import FarspanError
from trainer.optim.optimizer import OptimizerConfig, build_optimizer

NAMES = ("adamw", "adam", "adafactor")


def make_model(value: float) -> nn.Module:
    model = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 4), nn.LayerNorm(4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(value)
    return model


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_norms_and_biases_do_not_decay(name):
    model = make_model(1.0)
    optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    values = {name: parameter.unique().item() for name, parameter in model.named_parameters()}
    decayed = pytest.approx(1 - 0.1 * 0.5)
    assert values == {
        "0.weight": decayed, "1.weight": decayed, "1.bias": 1.0, "2.weight": 1.0, "2.bias": 1.0,
    }  # fmt: skip


def test_adam_adds_its_decay_to_the_gradient():
    """A first step of Adam is the rate times the sign of the gradient, which here is the decay alone."""
    model = make_model(3.0)
    optimizer = build_optimizer(model, OptimizerConfig(name="adam", learning_rate=0.1, weight_decay=0.5, eps=1e-12))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert [parameter.unique().item() for parameter in model.parameters()] == pytest.approx([2.9, 2.9, 3.0, 3.0, 3.0])


@pytest.mark.parametrize("name", NAMES)
def test_the_rate_of_the_groups_is_the_rate_of_the_next_step(name):
    model = make_model(1.0)
    optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=0.1))
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert all((parameter == 1).all() for parameter in model.parameters())


@pytest.mark.parametrize(
    "options",
    [{"learning_rate": 0.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"weight_decay": -1.0}, {"clip_norm": -1.0}],
)
def test_bad_optimizers_are_refused(options):
    with pytest.raises(FarspanError, match="optimizer"):
        OptimizerConfig(**options)
