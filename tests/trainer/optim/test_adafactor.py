"""Adafactor and Muon against independent implementations, whole and in shards, with stacked projections and without."""

from functools import partial
from typing import Any

import pytest
import torch
import torch._dynamo  # in every fork otherwise, where optimisers first need it
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LongT5Config, LongT5ForConditionalGeneration
from transformers.optimization import Adafactor as TransformersAdafactor

from tests.trainer.conversion.models import ours
from tests.trainer.distributed_ranks import on_ranks
from trainer.conversion.families import t5
from trainer.conversion.names import load_state
from trainer.model.layers.heads import Projections
from trainer.optim.adafactor import Adafactor
from trainer.optim.optimizer import OptimizerConfig, build_optimizer
from trainer.parallel.distributed import World

PYTORCHS = partial(torch.optim.Adafactor, eps=(1e-30, 1e-3))  # the published one; its default drowns small gradients
RATES = [1e-3, 1e-2, 0.7, 0.7, 0.3]  # the last ones are above 1 / sqrt(step)


def make_model() -> Any:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 9), nn.LayerNorm(9), nn.Linear(9, 3)).double()
    nn.init.zeros_(model[3].weight)  # its steps are relative to the least size
    return model


def trained(model: nn.Module, kind) -> torch.optim.Optimizer:
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
    trained(theirs, PYTORCHS)
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


def _sharded(world: World) -> list[list]:
    model = make_model()
    fully_shard(model, mesh=init_device_mesh("cpu", (world.size,)))
    trained(model, Adafactor)
    return [parameter.full_tensor().tolist() for parameter in model.parameters()]


def test_uneven_shards_change_nothing():
    """7 rows, 9 and 3 on 2 ranks."""
    whole = make_model()
    trained(whole, PYTORCHS)
    for found in on_ranks(2, _sharded):
        assert_same([torch.tensor(values, dtype=torch.float64) for values in found], whole)


class Stacked(nn.Module):
    """Three projections of widths that differ, in one matrix or in three, and something after them."""

    def __init__(self, stacked: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        scales = torch.tensor([0.001, 0.1, 2.0]).repeat_interleave(5)
        weight, bias = torch.randn(15, 4, generator=generator) * scales[:, None], torch.randn(15, generator=generator)
        layers = [Projections(4, 5, 3)] if stacked else [nn.Linear(4, 5) for _ in range(3)]
        self.layers = nn.ModuleList(layers).double()
        with torch.no_grad():
            for layer, w, b in zip(layers, weight.chunk(len(layers)), bias.chunk(len(layers)), strict=True):
                layer.weight.copy_(w)
                layer.bias.copy_(b)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = torch.linspace(-1, 1, 28, dtype=torch.float64).view(7, 4)[ids]
        return torch.cat([layer(x) for layer in self.layers], -1) * torch.linspace(0.1, 3, 15)

    def whole(self) -> list[torch.Tensor]:
        """Weight and bias of all projections together."""
        kept = [getattr(p, "full_tensor", p.detach)().detach() for p in self.parameters()]
        return [torch.cat(kept[::2]), torch.cat(kept[1::2])]


def trained_at_one_rate(model: Stacked, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    for step in range(6):
        ids = torch.randint(0, 7, (6,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(ids) - 1).square().sum().backward()
        optimizer.step()
    return model.whole()


def one_by_one() -> list[torch.Tensor]:
    """The three projections as parameters of their own."""
    model = Stacked(stacked=False)
    return trained_at_one_rate(model, PYTORCHS(model.parameters(), lr=0.3, weight_decay=0.0))


def built(model: nn.Module) -> torch.optim.Optimizer:
    return build_optimizer(model, OptimizerConfig(name="adafactor", learning_rate=0.3, weight_decay=0.0))


def test_stacked_projections_are_measured_one_by_one():
    model = Stacked(stacked=True)
    for found, expected in zip(trained_at_one_rate(model, built(model)), one_by_one(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def _sharded_stack(world: World) -> list[list]:
    model = Stacked(stacked=True)
    fully_shard(model, mesh=init_device_mesh("cpu", (world.size,)))
    return [tensor.tolist() for tensor in trained_at_one_rate(model, built(model))]


@pytest.mark.parametrize("size", [2, 4])
def test_shards_that_cut_projections_change_nothing(size):
    """15 rows of three projections on 2 ranks are 8 and 7; on 4 they are 4, 4, 4 and 3."""
    for found in on_ranks(size, _sharded_stack):
        for tensor, expected in zip(found, one_by_one(), strict=True):
            whole = torch.tensor(tensor, dtype=torch.float64)
            torch.testing.assert_close(whole, expected, rtol=1e-10, atol=1e-12)


def test_forty_updates_of_longt5_are_those_of_transformers():
    """Ours stacks q, k and v; transformers' are parameters of their own, with Adafactor as T5 was trained."""
    torch.manual_seed(0)
    config = LongT5Config(
        vocab_size=41, d_model=16, d_kv=4, d_ff=24, num_layers=2, num_decoder_layers=2, num_heads=4, dropout_rate=0.0,
        feed_forward_proj="gated-gelu", local_radius=3, encoder_attention_type="local",
    )  # fmt: skip
    theirs = LongT5ForConditionalGeneration(config)
    model = ours(t5, theirs).train()
    optimizer = build_optimizer(
        model, OptimizerConfig(name="adafactor", learning_rate=1e-2, weight_decay=0.0, clip_norm=0.0)
    )
    oracle = TransformersAdafactor(theirs.parameters(), scale_parameter=True, relative_step=True, warmup_init=False)
    for step in range(40):
        source, target = torch.randint(3, 41, (2, 4, 12), generator=torch.Generator().manual_seed(step))
        decoder = target.roll(1, 1)
        for module, one in ((theirs, oracle), (model, optimizer)):
            one.zero_grad()
            if module is theirs:
                loss = theirs(input_ids=source, decoder_input_ids=decoder, labels=target).loss * target.numel()
            else:
                loss = model(source_ids=source, decoder_ids=decoder, labels=target).minimised
            (loss / target.numel()).backward()
            one.step()
    expected = load_state(t5.name_map(t5.read_config(theirs.config.to_dict())), theirs.state_dict(), ignored=t5.IGNORED)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), expected[name], rtol=1e-4, atol=1e-5, msg=f"{name}: {{}}".format)


CONFIG = OptimizerConfig(name="muon", learning_rate=0.02, weight_decay=0.1)


def make_stacked_model() -> Any:
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
    model, theirs = make_stacked_model(), make_stacked_model()
    steps(model, build_optimizer(model, CONFIG))
    table, stacked, norm, last = theirs
    parts: Any = nn.ModuleList([nn.Linear(6, 8) for _ in range(3)])
    for part, weight, bias in zip(parts, stacked.weight.chunk(3), stacked.bias.chunk(3), strict=True):
        part.weight.data, part.bias.data = weight.detach().clone(), bias.detach().clone()

    class Separate(nn.Module):
        def forward(self, ids):
            vectors = table(ids)
            return last(norm(torch.cat([part(vectors) for part in parts], -1)))

    separate: Any = Separate()
    separate.parts, separate.rest = parts, nn.ModuleList([table, norm, last])
    hidden = [part.weight for part in parts] + [last.weight]
    others = [p for p in separate.parameters() if all(p is not one for one in hidden)]
    options: dict[str, Any] = {"lr": CONFIG.learning_rate, "weight_decay": CONFIG.weight_decay}
    muon = torch.optim.Muon(hidden, adjust_lr_fn="match_rms_adamw", **options)
    large, small = ([p for p in others if (p.dim() > 1) == big] for big in (True, False))
    groups: list[dict[str, Any]] = [{"params": large}, {"params": small, "weight_decay": 0.0}]
    steps(separate, muon, torch.optim.AdamW(groups, betas=CONFIG.betas, eps=CONFIG.eps, **options))
    torch.testing.assert_close(model[1].weight, torch.cat([part.weight for part in parts]), rtol=0, atol=2e-4)
    torch.testing.assert_close(model[1].bias, torch.cat([part.bias for part in parts]), rtol=0, atol=2e-4)
    for mine, other in ((model[0], table), (model[2], norm), (model[3], last)):
        for one, two in zip(mine.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=2e-4)


def test_a_first_step_has_the_singular_vectors_of_the_gradient():
    model = make_stacked_model()
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
    model = make_stacked_model()
    mesh = init_device_mesh("cpu", (world.size,))
    for layer in (model[1], model[3]):
        fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh)
    steps(model, build_optimizer(model, CONFIG))
    return [p.full_tensor().tolist() for p in model.parameters()]


def test_shards_take_the_same_steps():
    whole = make_stacked_model()
    steps(whole, build_optimizer(whole, CONFIG))
    for sharded in on_ranks(2, _in_shards):
        for one, two in zip(sharded, whole.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(one), two.detach(), rtol=0, atol=1e-3)
