"""Tests of collation, and of the loader's batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED, Examples
from tests.trainer.toy import SPECIAL, ToySource, toy_recipe
from trainer.data.batch import Batch, collate
from trainer.data.config import DataConfig
from trainer.data.curriculum import StageConfig
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture, Part

SOURCE = torch.arange(12, dtype=torch.int32).reshape(3, 4)

LABELS = torch.tensor([[5, IGNORED], [6, 7], [IGNORED, IGNORED]], dtype=torch.int32)


def test_a_full_batch_counts_what_is_predicted_and_makes_the_first_position_global():
    batch = Batch.full(SOURCE, LABELS, LABELS + 1)
    assert (batch.source_tokens, batch.target_tokens) == (12, 3)
    assert batch.global_positions is not None
    assert batch.global_positions.tolist() == [[True, False, False, False]] * 3
    assert Batch.full(SOURCE, LABELS, None, global_first=False).global_positions is None


def test_a_masked_language_model_gets_no_decoder_ids():
    assert "decoder_ids" not in Batch.full(SOURCE, SOURCE, None).inputs
    assert "decoder_ids" in Batch.full(SOURCE, LABELS, LABELS).inputs


def test_a_batch_without_targets_has_the_same_shapes_and_no_loss():
    batch = Batch.full(SOURCE, LABELS, LABELS + 1)
    empty = batch.without_targets()
    assert (empty.source_tokens, empty.target_tokens) == (0, 0)
    assert (empty.labels == IGNORED).all()
    assert {name: x.shape for name, x in empty.inputs.items() if x is not None} == {
        name: x.shape for name, x in batch.inputs.items() if x is not None
    }


def test_changes_reach_every_tensor_and_leave_none_alone():
    batch = Batch.full(SOURCE, LABELS, None, global_first=False).map(lambda x: x + 1)
    assert batch.source_ids.equal(SOURCE + 1)
    assert batch.labels.equal(LABELS + 1)
    assert batch.source_padding_mask is batch.global_positions is None


DATA = DataConfig(source_length=24, target_length=12, source_multiple=8, target_multiple=4)


def test_decoder_input_is_the_target_shifted_right():
    examples = ToySource().examples(np.array([3, 9]))  # 8 and 14 source tokens, 4 and 7 target tokens
    batch = collate(examples, np.array([0, 1]), DATA, SPECIAL)
    assert batch.source_ids.shape == (2, 16)
    assert batch.labels.shape == batch.decoder_ids.shape == (2, 8)
    assert {x.dtype for x in (batch.source_ids, batch.decoder_ids, batch.labels)} == {torch.int32}
    for row, length in enumerate([4, 7]):
        target = examples.target_ids[row, :length].tolist()
        assert batch.labels[row].tolist() == target + [IGNORED] * (8 - length)
        shifted = [SPECIAL["<eos>"], *target] + [SPECIAL["<pad>"]] * (7 - length)
        assert batch.decoder_ids[row].tolist() == shifted
    assert batch.source_padding_mask.sum(1).tolist() == [8, 14]
    assert (batch.source_tokens, batch.target_tokens) == (22, 11)
    assert (batch.source_ids[~batch.source_padding_mask] == SPECIAL["<pad>"]).all()


def test_without_padding_there_is_no_mask():
    assert collate(ToySource().examples(np.array([3])), np.array([0]), DATA, SPECIAL).source_padding_mask is None


def test_encoder_only_batches_have_labels_in_place():
    batch = collate(ToySource(encoder_only=True).examples(np.array([3, 9])), np.array([0, 1]), DATA, SPECIAL)
    assert batch.decoder_ids is None
    assert "decoder_ids" not in batch.inputs
    assert batch.labels.shape == (2, 16)
    assert batch.target_tokens == 2
    assert torch.equal(batch.labels[:, 2], batch.source_ids[:, 2])


def test_documents_and_global_positions_are_padded_with_the_source():
    examples = ToySource().examples(np.array([3, 9]))  # 8 and 14 source tokens
    real, places = examples.source_mask, np.arange(14)
    segments = np.where(real, (places >= 5).astype(np.int32), -1)
    examples = replace(examples, segment_ids=segments, global_positions=real & (places % 3 == 0))
    apart = replace(DATA, across_documents=False)
    batch = collate(examples, np.arange(2), apart, SPECIAL)
    assert batch.segment_ids.tolist() == [[0] * 5 + [1] * 3 + [-1] * 8, [0] * 5 + [1] * 9 + [-1] * 2]
    assert batch.global_positions.shape == batch.source_ids.shape == (2, 16)
    assert [row.nonzero().flatten().tolist() for row in batch.global_positions] == [[0, 3, 6], [0, 3, 6, 9, 12]]
    moved = batch.to(torch.device("meta"))
    assert moved.inputs["segment_ids"].device.type == moved.inputs["global_positions"].device.type == "meta"
    assert collate(examples, np.arange(2), DATA, SPECIAL).segment_ids is None
    one = replace(examples, segment_ids=np.minimum(segments, 0), global_positions=np.zeros_like(real))
    batch = collate(one, np.arange(2), apart, SPECIAL)
    assert (batch.segment_ids, batch.global_positions) == (None, None)


def test_documents_that_nobody_numbers_cannot_be_kept_apart():
    with pytest.raises(FarspanError, match=r"data.across_documents is false, but the examples do not say"):
        collate(ToySource().examples(np.array([3])), np.arange(1), replace(DATA, across_documents=False), SPECIAL)


def test_global_positions_beyond_the_source_are_named():
    examples = ToySource().examples(np.array([3, 9]))  # 8 and 14 source tokens
    chosen = np.zeros((2, 14), bool)
    chosen[0, 11] = True
    with pytest.raises(FarspanError, match=r"0{31}3: position 11 is marked as global, but its source has 8 positions"):
        collate(replace(examples, global_positions=chosen), np.arange(2), DATA, SPECIAL)


def test_a_long_example_is_named_not_cut():
    with pytest.raises(FarspanError, match=r"sequence 0{31}f: its source has 20 positions, data.source_length is 16"):
        collate(ToySource().examples(np.array([3, 15])), np.arange(2), replace(DATA, source_length=16), SPECIAL)
    with pytest.raises(FarspanError, match=r"target has 10 positions, data.target_length is 8"):
        collate(ToySource().examples(np.array([15])), np.arange(1), replace(DATA, target_length=8), SPECIAL)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 2), st.integers(1, 5), st.randoms())
def test_rows_are_what_they_were_and_filler(lengths, spare, multiple, random):
    width = max(lengths) + spare  # examples may be wider than their longest row
    source = np.array([[random.randint(5, 90) for _ in range(width)] for _ in lengths], np.int32).reshape(
        len(lengths), width
    )
    sizes, none = np.array(lengths, np.int32), np.zeros(len(lengths), np.int32)
    ids = np.zeros((len(lengths), 16), np.uint8)
    examples = Examples(ids, source, sizes, np.empty((len(lengths), 0), np.int32), none, labels=source + 100)
    data = DataConfig(source_length=10 * multiple, source_multiple=multiple)
    batch = collate(examples, np.arange(len(lengths)), data, SPECIAL)
    wide = -(-max(max(lengths), 1) // multiple) * multiple
    rows = [row[:size].tolist() for row, size in zip(source, lengths, strict=True)]
    assert batch.source_ids.tolist() == [row + [SPECIAL["<pad>"]] * (wide - len(row)) for row in rows]
    assert batch.labels.tolist() == [[x + 100 for x in row] + [IGNORED] * (wide - len(row)) for row in rows]
    real = [[True] * len(row) + [False] * (wide - len(row)) for row in rows]
    assert batch.source_padding_mask is None if min(lengths) == wide else batch.source_padding_mask.tolist() == real
    assert batch.source_tokens == batch.target_tokens == sum(lengths)


MIXTURE = Mixture([Part("many", ToySource(50), 3.0), Part("few", ToySource(7), 1.0)])


def make_loader(rank: int = 0, world_size: int = 1, *, mixture: Mixture = MIXTURE, seed: int = 1, **run) -> Loader:
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
    assert columns(Loader(recipe.curriculum[:1], [MIXTURE], seed=1).step(19)) == columns(loader.step(19))


def test_cycles_of_short_and_long_rows_repeat_none_before_an_epoch_ends():
    """Four times as many short rows in an update as rows of four times the length, for equal tokens an update."""
    recipe = toy_recipe("unused")
    long = replace(recipe.data, source_length=4 * recipe.data.source_length)
    cycle = (StageConfig(steps=2, batch_size=8), StageConfig(steps=3, batch_size=2, data=long))
    recipe = _with_positions(recipe, long.source_length)
    recipe = replace(recipe, stages=cycle * 3, run=replace(recipe.run, steps=15, micro_batch_size=8))
    short_rows, long_rows = Mixture([Part("data", ToySource(48))]), Mixture([Part("data", ToySource(18))])
    loader = Loader(recipe.curriculum, [short_rows, long_rows] * 3, seed=1)
    steps = [np.concatenate([batch.samples for batch in loader.step(step)]) for step in range(15)]
    assert [len(samples) for samples in steps] == [8, 8, 2, 2, 2] * 3
    for rows, own in ((short_rows, 8), (long_rows, 2)):
        samples = np.concatenate([samples for samples in steps if len(samples) == own])
        assert sorted(rows.sequences(samples, 1).indices.tolist()) == list(range(len(rows)))


def _with_positions(recipe, count):
    encoder = replace(recipe.model.encoder, positions=replace(recipe.model.encoder.positions, count=count))
    return replace(recipe, model=replace(recipe.model, encoder=encoder))


def test_each_batch_holds_the_sources_by_their_weights():
    loader = make_loader(micro_batch_size=12)
    for step in range(5):
        (batch,) = loader.step(step)
        origins = MIXTURE.origins(MIXTURE.sequences(batch.samples, loader.seed).indices)
        names = [origin.partition(":")[0] for origin in origins]
        assert (names.count("many"), names.count("few")) == (9, 3)


def test_another_seed_is_another_order():
    orders = [columns(make_loader(seed=seed).step(0))[1] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
