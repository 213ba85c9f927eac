"""Muon against PyTorch's, with stacked projections and without, whole and in shards."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.trainer.distributed_ranks import on_ranks
from trainer.model.layers.heads import Projections
from trainer.optim.optimizer import OptimizerConfig, build_optimizer
from trainer.parallel.distributed import World

CONFIG = OptimizerConfig(name="muon", learning_rate=0.02, weight_decay=0.1)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 6), Projections(6, 8, count=3), nn.LayerNorm(24), nn.Linear(24, 5))


def steps(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    for step in range(4):
        ids = torch.randint(0, 7, (9,), generator=torch.Generator().manual_seed(step))
        model.zero_grad()
        (model(ids) - 1).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()


def test_it_is_pytorchs_on_each_projection_and_adamw_elsewhere():
    model, theirs = make_model(), make_model()
    steps(model, build_optimizer(model, CONFIG))
    table, stacked, norm, last = theirs
    parts = nn.ModuleList([nn.Linear(6, 8) for _ in range(3)])
    for part, weight, bias in zip(parts, stacked.weight.chunk(3), stacked.bias.chunk(3), strict=True):
        part.weight.data, part.bias.data = weight.detach().clone(), bias.detach().clone()

    class Separate(nn.Module):
        def forward(self, ids):
            vectors = table(ids)
            return last(norm(torch.cat([part(vectors) for part in parts], -1)))

    separate = Separate()
    separate.parts, separate.rest = parts, nn.ModuleList([table, norm, last])
    hidden = [part.weight for part in parts] + [last.weight]
    others = [p for p in separate.parameters() if all(p is not one for one in hidden)]
    options = {"lr": CONFIG.learning_rate, "weight_decay": CONFIG.weight_decay}
    muon = torch.optim.Muon(hidden, adjust_lr_fn="match_rms_adamw", **options)
    groups = [{"params": [p for p in others if p.dim() > 1]}, {"params": [p for p in others if p.dim() < 2]}]
    groups[1]["weight_decay"] = 0.0
    steps(separate, muon, torch.optim.AdamW(groups, betas=CONFIG.betas, eps=CONFIG.eps, **options))
    torch.testing.assert_close(model[1].weight, torch.cat([part.weight for part in parts]), rtol=0, atol=2e-4)
    torch.testing.assert_close(model[1].bias, torch.cat([part.bias for part in parts]), rtol=0, atol=2e-4)
    for ours, other in ((model[0], table), (model[2], norm), (model[3], last)):
        for one, two in zip(ours.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=2e-4)


def test_a_first_step_has_the_singular_vectors_of_the_gradient():
    model = make_model()
    before = model[3].weight.detach().clone()
    model(torch.arange(7)).square().sum().backward()
    gradient = model[3].weight.grad.clone()
    build_optimizer(model, OptimizerConfig(name="muon", learning_rate=0.02, weight_decay=0.0)).step()
    step = (before - model[3].weight.detach()) / (0.02 * 0.2 * 24**0.5)
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    values = left.mT @ step @ right.mT
    assert (values.diagonal() > 0.3).all()
    assert (values.diagonal() < 1.4).all()
    assert (values - values.diagonal().diag()).abs().max() < 0.1


def _in_shards(world: World) -> list[list]:
    model = make_model()
    mesh = init_device_mesh("cpu", (world.size,))
    for layer in (model[1], model[3]):
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    steps(model, build_optimizer(model, CONFIG))
    return [p.full_tensor().tolist() for p in model.parameters()]


def test_shards_take_the_same_steps():
    whole = make_model()
    steps(whole, build_optimizer(whole, CONFIG))
    for sharded in on_ranks(2, _in_shards):
        for one, two in zip(sharded, whole.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(one), two.detach(), rtol=0, atol=1e-3)
