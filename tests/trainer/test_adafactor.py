"""Adafactor against PyTorch's, whole and in shards."""

from __future__ import annotations

import torch
import torch._dynamo  # in every fork otherwise, where optimisers first need it
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.trainer.distributed_ranks import on_ranks
from trainer.adafactor import Adafactor
from trainer.distributed import Ranks

RATES = [1e-3, 1e-2, 0.7, 0.7, 0.3]  # the last ones are above 1 / sqrt(step)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 9), nn.LayerNorm(9), nn.Linear(9, 3)).double()
    nn.init.zeros_(model[3].weight)  # its steps are relative to the least size
    return model


def trained(model: nn.Module, kind: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    optimizer = kind(model.parameters(), lr=RATES[0], weight_decay=0.1)
    for step, rate in enumerate(RATES):
        optimizer.param_groups[0]["lr"] = rate
        ids = torch.randint(0, 5, (6,), generator=torch.Generator().manual_seed(step))  # rows 5 and 6 have no gradient
        optimizer.zero_grad()
        (model(ids) - 1).square().sum().backward()
        optimizer.step()
    return optimizer


def assert_same(found, model) -> None:
    for parameter, expected in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected.detach(), rtol=1e-12, atol=1e-14)


def test_it_is_the_one_of_pytorch():
    ours, theirs = make_model(), make_model()
    trained(ours, Adafactor)
    trained(theirs, torch.optim.Adafactor)
    assert_same([p.detach() for p in ours.parameters()], theirs)


def test_matrices_take_one_number_a_row_and_one_a_column():
    model = make_model()
    state = trained(model, Adafactor).state[model[1].weight]
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        "step": (), "rows": (9, 1), "columns": (1, 5),
    }  # fmt: skip


def test_it_goes_on_from_its_saved_state():
    straight, first = make_model(), make_model()
    optimizer = trained(straight, Adafactor)
    trained(straight, lambda parameters, **_: optimizer)
    saved = trained(first, Adafactor).state_dict()
    second = make_model()
    second.load_state_dict(first.state_dict())

    def restored(parameters, **options):
        fresh = Adafactor(parameters, **options)
        fresh.load_state_dict(saved)
        return fresh

    trained(second, restored)
    assert_same([p.detach() for p in second.parameters()], straight)


def _sharded(ranks: Ranks) -> list[list]:
    model = make_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks.size,)))
    trained(model, Adafactor)
    return [parameter.full_tensor().tolist() for parameter in model.parameters()]


def test_uneven_shards_change_nothing():
    """7 rows, 9 and 3 on 2 ranks."""
    whole = make_model()
    trained(whole, torch.optim.Adafactor)
    for found in on_ranks(2, _sharded):
        assert_same([torch.tensor(values, dtype=torch.float64) for values in found], whole)
