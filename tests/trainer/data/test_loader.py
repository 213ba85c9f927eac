from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from objectives.api.examples import IGNORED
from tests.trainer.toy import ToySource, toy_recipe
from trainer.data.curriculum import StageConfig
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture, Part

MIXTURE = Mixture([Part("many", ToySource(50), 3.0), Part("few", ToySource(7), 1.0)])


def make_loader(rank: int = 0, world_size: int = 1, *, mixture: Mixture = MIXTURE, seed: int = 1, **run: int) -> Loader:
    recipe = toy_recipe("unused", **{"batch_size": 12, **run})
    return Loader(recipe.curriculum, [mixture] * len(recipe.curriculum), seed, rank, world_size)


def columns(batches) -> tuple[list, list]:
    kept = [batch for batch in batches if (batch.labels != IGNORED).any()]
    return (
        np.concatenate([batch.samples for batch in kept]).tolist(),
        np.concatenate([batch.sequence_ids for batch in kept]).tolist(),
    )


@pytest.mark.parametrize(("world_size", "micro"), [(1, 1), (1, 5), (2, 4), (3, 2), (4, 1), (5, 3)])
def test_any_ranks_and_micro_batches_see_the_same_samples(world_size, micro):
    straight = make_loader(micro_batch_size=12)
    for step in (0, 4, 30):
        (whole,) = straight.step(step)
        ranks = [make_loader(rank, world_size, micro_batch_size=micro).step(step) for rank in range(world_size)]
        assert len({len(batches) for batches in ranks}) == 1
        assert columns(batch for batches in ranks for batch in batches) == columns([whole])
        assert whole.samples.tolist() == list(range(12 * step, 12 * step + 12))


@pytest.mark.parametrize("world_size", [2, 3, 5, 7])
def test_micro_batches_are_the_same_for_every_number_of_ranks(world_size):
    """Hence dropout, which belongs to a micro-batch, is too."""
    alone = make_loader(micro_batch_size=5).step(3)
    shared = [
        batch for rank in range(world_size) for batch in make_loader(rank, world_size, micro_batch_size=5).step(3)
    ]
    full = [batch for batch in shared if batch.target_tokens]
    empty = [batch for batch in shared if not batch.target_tokens]
    assert [batch.samples.tolist() for batch in full] == [batch.samples.tolist() for batch in alone]
    assert all((one.labels == other.labels).all() for one, other in zip(full, alone, strict=True))
    assert len(full) + len(empty) == world_size * -(-3 // world_size)
    for batch in empty:
        assert (batch.labels == IGNORED).all()
        assert batch.source_tokens == 0
        assert batch.source_ids.shape in [other.source_ids.shape for other in full]


def test_stages_change_data_and_go_on_with_the_order():
    recipe = toy_recipe("unused", batch_size=12)
    wide = replace(recipe.data, source_length=32, source_multiple=32)
    stages = (StageConfig(steps=20), StageConfig(steps=10, batch_size=4), StageConfig(steps=30, data=wide))
    recipe = replace(_with_positions(recipe, 32), stages=stages)
    other = Mixture([Part("data", ToySource(5))])
    loader = Loader(recipe.curriculum, [MIXTURE, MIXTURE, other], seed=1)
    numbers = [np.concatenate([batch.samples for batch in loader.step(step)]).tolist() for step in (19, 20, 29, 30, 99)]
    assert numbers == [
        list(range(228, 240)), list(range(240, 244)), list(range(276, 280)), list(range(12)), list(range(828, 840)),
    ]  # fmt: skip
    assert {batch.source_ids.shape[1] for batch in loader.step(30)} == {32}
    assert loader.origins(30, np.arange(2))[0].startswith("data: sequence")
    one_stage = Loader(recipe.curriculum[:1], [MIXTURE], seed=1)
    assert columns(one_stage.step(19)) == columns(loader.step(19))


def _with_positions(recipe, count):
    encoder = replace(recipe.model.encoder, positions=replace(recipe.model.encoder.positions, count=count))
    return replace(recipe, model=replace(recipe.model, encoder=encoder))


def test_each_batch_holds_the_sources_by_their_weights():
    loader = make_loader(micro_batch_size=12)
    for step in range(5):
        (batch,) = loader.step(step)
        names = [origin.partition(":")[0] for origin in loader.origins(step, batch.samples)]
        assert (names.count("many"), names.count("few")) == (9, 3)


def test_another_seed_is_another_order():
    orders = [columns(make_loader(seed=seed).step(0))[1] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
