"""The same numbers on one process, and shared among several in every way."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from corpora.errors import FarspanError
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.toy import SPECIAL, ToySource, make_trainer, toy_recipe
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture
from trainer.model.build import build_model
from trainer.model.config import DecoderConfig, EncoderConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import EmbeddingConfig, NormConfig
from trainer.model.loss import LossConfig, R3FConfig
from trainer.model.patterns.layered import Layered
from trainer.model.patterns.staggered import Staggered
from trainer.model.patterns.window import Window
from trainer.model.positions import Rotary
from trainer.parallel.distributed import PATIENCE, World
from trainer.parallel.wrapping import (
    ParallelConfig,
    _mesh,
    apply_activation_checkpointing,
    apply_compile,
    apply_parallel,
    reduction_context,
)

MODES = {
    "ddp": ParallelConfig(mode="ddp"),
    "fsdp": ParallelConfig(mode="fsdp"),
    "hybrid": ParallelConfig(mode="hybrid", shard_size=2),
    "fsdp, each": ParallelConfig(mode="fsdp", reduce="micro_batch"),
    "hybrid, each": ParallelConfig(mode="hybrid", shard_size=2, reduce="micro_batch"),
}


def trained(world: World, recipe, source, steps: int = 3):
    """Records of ``steps`` updates, and all weights, in float64."""
    torch.set_default_dtype(torch.float64)
    try:
        run = recipe.run
        loader = Loader(recipe.curriculum, [Mixture.of(source)], run.seed, world.rank, world.size)
        trainer = make_trainer(recipe, world)
        records = [trainer.record(trainer.update(loader)) for _ in range(steps)]
        weights = [x.full_tensor() if isinstance(x, DTensor) else x for x in trainer.model.parameters()]
        shared = sum(isinstance(x, DTensor) for x in trainer.model.parameters())
        return [[r["loss"], r["grad_norm"], r["target_tokens"]] for r in records], [w.tolist() for w in weights], shared
    finally:
        torch.set_default_dtype(torch.float32)


def recipe_of(parallel=None, **run):
    recipe = toy_recipe("unused", **{"batch_size": 12, "micro_batch_size": 1, **run})
    return replace(recipe, parallel=parallel or ParallelConfig())


@pytest.fixture(scope="module")
def alone():
    return trained(World.alone(), recipe_of(), ToySource())


def assert_same(found, expected, mode: str = "") -> None:
    """Records and weights of ``trained`` are equal up to rounding."""
    assert found[0] == [pytest.approx(record, rel=1e-9) for record in expected[0]], mode
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-9, atol=1e-9)


def trained_in(world: World, modes: list[str]):
    return [trained(world, recipe_of(MODES[mode]), ToySource()) for mode in modes]


@pytest.mark.parametrize(
    ("size", "modes"),
    [
        (2, ["ddp", "fsdp", "fsdp, each"]),
        pytest.param(3, ["ddp", "fsdp"], marks=pytest.mark.slow),
        (4, ["hybrid"]),
        pytest.param(4, ["hybrid, each", "ddp", "fsdp"], marks=pytest.mark.slow),
    ],
)
def test_ranks_make_the_updates_that_one_process_makes(alone, size, modes):
    for found in on_ranks(size, trained_in, modes):
        for mode, (*numbers, shared) in zip(modes, found, strict=True):
            assert shared == (0 if mode == "ddp" else len(alone[1])), mode
            assert_same(numbers, alone, mode)


def with_r3f(per, mode: str | None = None, **run):
    recipe = recipe_of(mode and MODES[mode], batch_size=5, **run)
    loss = LossConfig(r3f=R3FConfig(weight=0.5, eps=0.1, per=per))
    return replace(recipe, loss=loss, model=replace(recipe.model, init_std=0.3))


def trained_with_r3f(world: World, modes: list[tuple[str, str]]):
    return [trained(world, with_r3f(per, mode), ToySource(), 1) for per, mode in modes]


def test_ranks_agree_about_r3f():
    """Micro-batches of one, so that ranks see the same noise and dropout; one rank has a batch without targets."""
    modes = [("sentence", "ddp"), ("token", "fsdp, each")]
    expected = {per: trained(World.alone(), with_r3f(per), ToySource(), 1) for per in ("sentence", "token")}
    for found in on_ranks(2, trained_with_r3f, modes):
        for (per, mode), numbers in zip(modes, found, strict=True):
            assert_same(numbers, expected[per], mode)


class SomeGlobal(ToySource):
    """The first token of every fifth sequence is global; of others none is."""

    def examples(self, indices, epochs=None):
        examples = super().examples(indices)
        chosen = np.zeros(examples.source_ids.shape, bool)
        chosen[:, 0] = indices % 5 == 0
        return replace(examples, global_positions=chosen)


@pytest.mark.parametrize("mode", ["ddp", "fsdp", "fsdp, each"])
def test_weights_that_only_some_ranks_use_are_shared_too(mode):
    recipe = recipe_of(MODES[mode], batch_size=4)
    encoder = replace(recipe.model.encoder, attention=Window(4), pooling=None)
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder, init_std=0.3))
    alone = trained(World.alone(), recipe, SomeGlobal())
    for found in on_ranks(2, trained, recipe, SomeGlobal()):
        assert_same(found, alone)


GEMMA = {
    "heads": HeadsConfig(count=4, kv_count=2, bias=False, norm_eps=1e-6),
    "norm": NormConfig(placement="both", kind="rms"),
    "embedding": EmbeddingConfig(norm=False, own_id=5),
}


@pytest.mark.parametrize("cross", ["global", "merged"])
@pytest.mark.parametrize("mode", ["ddp", "fsdp, each"])
def test_other_cross_attentions_are_shared_too(mode, cross):
    recipe = recipe_of(MODES[mode], batch_size=4, activation_checkpointing="layer")
    encoder = replace(recipe.model.encoder, attention=Staggered(4, 2), pooling=None)
    decoder = replace(recipe.model.decoder, global_cross_attention=True)
    model = replace(recipe.model, encoder=encoder, decoder=decoder, init_std=0.3)
    if cross == "merged":
        positions, pattern = Rotary(local_theta=50.0), Layered(2, 0, 2, causal=True)
        model = replace(
            model,
            **GEMMA,
            encoder=EncoderConfig(layers=2, positions=positions, attention=Layered(2, 3, 2)),
            decoder=DecoderConfig(layers=2, positions=positions, attention=pattern, cross="merged"),
        )
    recipe = replace(recipe, model=model)
    alone = trained(World.alone(), recipe, ToySource())
    for found in on_ranks(2, trained, recipe, ToySource()):
        assert_same(found, alone)


def gradients_between(world: World, recipe) -> int:
    """Numbers in shares of gradients before the last micro-batch of a step."""
    model = build_model(recipe.model, SPECIAL.vocab_size, recipe.run.seed)
    called = apply_parallel(model, recipe.parallel, world, "fp32")
    loader = Loader(recipe.curriculum, [Mixture.of(ToySource())], recipe.run.seed, world.rank, world.size)
    for batch in loader.step(0)[:-1]:
        with reduction_context(called, recipe.parallel, last=False):
            called(**batch.inputs).minimised.backward()
    return sum(cast(DTensor, p.grad).to_local().numel() for p in model.parameters() if p.grad is not None)


def test_gradients_are_shared_out_when_the_recipe_says():
    numbers = sum(p.numel() for p in build_model(recipe_of().model, SPECIAL.vocab_size, 0).parameters())
    assert on_ranks(2, gradients_between, recipe_of(MODES["fsdp"])) == [0, 0]
    assert sum(on_ranks(2, gradients_between, recipe_of(MODES["fsdp, each"]))) == numbers


def in_bf16(world: World, recipe):
    loader = Loader(recipe.curriculum, [Mixture.of(ToySource())], recipe.run.seed, world.rank, world.size)
    trainer = make_trainer(recipe, world)
    losses = [trainer.record(trainer.update(loader))["loss"] for _ in range(3)]
    return losses, {parameter.dtype for parameter in trainer.model.parameters()}


def test_bf16_is_close_to_fp32_in_every_mode_and_weights_stay_float32():
    expected, _ = in_bf16(World.alone(), recipe_of(dropout=0.0))
    for mode in ("ddp", "fsdp"):
        for losses, dtypes in on_ranks(2, in_bf16, recipe_of(MODES[mode], dropout=0.0, precision="bf16")):
            assert losses == pytest.approx(expected, rel=0.02)
            assert losses != expected
            assert dtypes == {torch.float32}


def compiled(world: World, recipe):
    """Losses of two batches, and the norm of their gradients, with the layers compiled or not."""
    losses = []
    for compile in (False, True):
        torch._dynamo.reset()
        model = build_model(recipe.model, SPECIAL.vocab_size, recipe.run.seed)
        apply_activation_checkpointing(model, "selective")
        if compile:
            apply_compile(model, "eager")
        called = apply_parallel(model, recipe.parallel, world, "fp32")
        loader = Loader(recipe.curriculum, [Mixture.of(ToySource())], recipe.run.seed, world.rank, world.size)
        for batch in loader.step(0)[:2]:
            loss = called(**batch.inputs)
            loss.minimised.backward()
            losses.append(loss.plain.item())
        gradients = [parameter.grad for parameter in model.parameters()]
        norm = torch.nn.utils.get_total_norm(gradients)
        losses.append((norm.full_tensor() if isinstance(norm, DTensor) else norm).item())
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_compiled_layers_are_shared_too(mode):
    for found in on_ranks(2, compiled, recipe_of(MODES[mode], dropout=0.0)):
        assert found[3:] == pytest.approx(found[:3], rel=1e-5)


def refused(world: World, recipe):
    with pytest.raises(FarspanError) as error:
        trained(world, recipe, ToySource())
    return str(error.value)


def limits(world: World):
    """Seconds that the groups of a shared model wait, by mode, and those of the default group."""
    found = {}
    for mode in ("fsdp", "hybrid"):
        mesh = _mesh(MODES[mode], world)
        groups = [mesh.get_group(name) for name in mesh.mesh_dim_names]
        found[mode] = [group._get_backend(world.device).options._timeout.total_seconds() for group in groups]
    return found


def test_every_group_waits_as_long_as_a_run_is_patient():
    for found in on_ranks(4, limits):
        assert found == {"fsdp": [PATIENCE.total_seconds()], "hybrid": [PATIENCE.total_seconds()] * 2}


def test_groups_that_do_not_come_out_even_are_refused():
    recipe = recipe_of(ParallelConfig(mode="hybrid", shard_size=2))
    for message in on_ranks(3, refused, recipe):
        assert message == "parallel.shard_size is 2 with 3 processes; start a multiple of it, or change it"
