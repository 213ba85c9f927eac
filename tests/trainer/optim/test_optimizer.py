"""Tests of parameter groups and schedules."""

from typing import Any, get_args, get_type_hints

import pytest
import torch
import transformers.optimization as hugging_face
from torch import nn

from corpora.errors import FarspanError
from trainer.optim.optimizer import OptimizerConfig, build_optimizer
from trainer.optim.schedule import ScheduleConfig, learning_rate_factor

NAMES = ("adamw", "adam", "adafactor", "muon")


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


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        *((0, 0.0), (250, 0.5), (499, 499 / 500), (500, 1.0)),
        *((50_250, 0.5), (99_999, 1 / 99_500), (100_000, 0.0), (100_001, 0.0)),
    ],
)
def test_bart_ls_schedule(step, factor):
    assert learning_rate_factor(step, 100_000, ScheduleConfig()) == pytest.approx(factor, abs=1e-12)


STEPS, WARMUP = 40, 7

# What each shape needs besides the steps of warm-up.
ORACLES: dict[Any, tuple[str, dict[str, Any]]] = {
    ("polynomial", 1.0, 0.0): ("get_linear_schedule_with_warmup", {"num_training_steps": STEPS}),
    ("polynomial", 2.0, 0.1): (
        "get_polynomial_decay_schedule_with_warmup",
        {"num_training_steps": STEPS, "power": 2.0, "lr_end": 0.1},
    ),
    ("cosine", 1.0, 0.0): ("get_cosine_schedule_with_warmup", {"num_training_steps": STEPS}),
    ("cosine", 1.0, 0.1): (
        "get_cosine_with_min_lr_schedule_with_warmup",
        {"num_training_steps": STEPS, "min_lr_rate": 0.1},
    ),
    ("inverse_sqrt", 1.0, 0.0): ("get_inverse_sqrt_schedule", {}),
    ("constant", 1.0, 0.0): ("get_constant_schedule_with_warmup", {}),
}


@pytest.mark.parametrize(
    ("shape", "power", "end", "warmup"),
    [(*key, warmup) for key in ORACLES for warmup in (0, WARMUP) if warmup or key[0] != "inverse_sqrt"],
)
def test_every_shape_is_that_of_hugging_face(shape, power, end, warmup):
    name, options = ORACLES[shape, power, end]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    factor = getattr(hugging_face, name)(optimizer, num_warmup_steps=warmup, **options).lr_lambdas[0]
    schedule = ScheduleConfig(shape=shape, warmup_steps=warmup, power=power, end=end)
    ours = [learning_rate_factor(step, STEPS, schedule) for step in range(STEPS + 1)]
    assert ours == pytest.approx([factor(step) for step in range(STEPS + 1)])


@pytest.mark.parametrize(
    "options",
    [
        {"warmup_steps": -1},
        {"power": -1.0},
        {"end": 2.0},
        {"shape": "cosine", "power": 2.0},
        {"shape": "constant", "end": 0.1},
        {"shape": "inverse_sqrt", "end": 0.1},
        {"shape": "inverse_sqrt", "warmup_steps": 0},
        {"steps": 500},
        {"steps": 9, "shape": "constant", "warmup_steps": 0},
    ],
)
def test_bad_schedules_are_refused(options):
    with pytest.raises(FarspanError, match="schedule"):
        ScheduleConfig(**options)


@pytest.mark.parametrize("shape", ["polynomial", "cosine"])
def test_a_run_may_stop_before_its_schedule_does(shape):
    longer = ScheduleConfig(shape=shape, warmup_steps=5, end=0.1, steps=50)
    whole = ScheduleConfig(shape=shape, warmup_steps=5, end=0.1)
    for step in range(60):
        assert learning_rate_factor(step, 10, longer) == learning_rate_factor(step, 50, whole)


@pytest.mark.parametrize("shape", get_args(get_type_hints(ScheduleConfig)["shape"]))
def test_a_schedule_ends_with_the_run_if_a_longer_run_has_other_rates(shape):
    schedule = ScheduleConfig(shape=shape, warmup_steps=WARMUP)
    rates, longer = ([learning_rate_factor(step, run, schedule) for step in range(STEPS)] for run in (STEPS, 2 * STEPS))
    assert schedule.ends_with_run == (rates != longer)


def test_a_schedule_with_a_length_of_its_own_does_not_end_with_the_run():
    assert not ScheduleConfig(warmup_steps=WARMUP, steps=STEPS).ends_with_run
