"""Tests of the units of training."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.masked_folders import MaskedSource, encoder_recipe
from tests.trainer.toy import ToySource, toy_recipe, train_quietly
from trainer.data.curriculum import StageConfig
from trainer.metrics import batch_flops
from trainer.model.config import GeneratorConfig
from trainer.model.loss import LossConfig, R3FConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.seq2seq import Seq2Seq
from trainer.run import train as training
from trainer.run.units import open_unit, unit_type
from trainer.run.units.single import MaskedLMUnit, Seq2SeqUnit
from trainer.run_config import EvaluationConfig

UNITS = [
    (toy_recipe("unused"), ToySource(), Seq2SeqUnit, Seq2Seq),
    (encoder_recipe("unused"), MaskedSource(), MaskedLMUnit, MaskedLM),
]


@pytest.mark.parametrize(("recipe", "source", "kind", "model"), UNITS)
def test_the_model_decides_over_the_unit(recipe, source, kind, model):
    unit = open_unit(recipe, source)
    assert type(unit) is unit_type(recipe.model, recipe.generator) is kind
    built = unit.build_model()
    assert type(built) is model
    assert built.tokens.num_embeddings == unit.special.vocab_size


@pytest.mark.parametrize(("recipe", "source", "kind", "model"), UNITS)
def test_the_largest_batch_is_as_large_as_the_unit_says(recipe, source, kind, model):
    unit = open_unit(recipe, source)
    (stage,) = unit.curriculum
    ((config, targets, _),) = unit.sizes(recipe.model, stage, recipe.loss)
    batch, built = unit.largest_batch(stage, unit.special.vocab_size), unit.build_model()
    rows, width = batch.source_ids.shape
    assert (rows, width) == (stage.micro_batch_size, stage.data.source_length)
    assert config == recipe.model
    assert batch.target_tokens == rows * targets
    assert batch.global_positions.sum() == rows
    counts = unit.counts(built, [batch, batch], stage)
    assert counts.source_tokens == 2 * batch.source_tokens
    assert counts.flops == 3 * 2 * batch_flops(recipe.model, unit.special.vocab_size, rows, width, rows * targets, 1)
    assert unit.losses(built, batch, recipe.loss).plain.isfinite()


@pytest.mark.parametrize(
    ("recipe", "source", "said"),
    [
        (toy_recipe("unused"), MaskedSource(), "data: the objective has labels at masked tokens"),
        (encoder_recipe("unused"), ToySource(), "data: the objective has a target text"),
    ],
)
def test_examples_of_the_other_kind_are_refused(recipe, source, said):
    with pytest.raises(FarspanError, match=f"^{said}"):
        open_unit(recipe, source)
    right = ToySource() if recipe.model.decoder else MaskedSource()
    recipe = replace(recipe, evaluation=EvaluationConfig())
    with pytest.raises(FarspanError, match=f"^{said.replace('data', 'evaluation', 1)}"):
        open_unit(recipe, right).open_held_out(source)


def test_joint_training_takes_no_open_source():
    recipe = replace(toy_recipe("unused"), generator=GeneratorConfig(initial="run"))
    with pytest.raises(FarspanError, match=r"joint training with a generator opens its corpus itself"):
        open_unit(recipe, ToySource())


def test_a_stage_changes_the_attention_that_is_counted():
    recipe = toy_recipe("unused", steps=6)
    recipe = replace(recipe, stages=(StageConfig(steps=2), StageConfig(steps=4, attention=Block(4))))
    unit = open_unit(recipe, ToySource())
    model, (first, second) = unit.build_model(), unit.curriculum
    batch = unit.largest_batch(first, unit.special.vocab_size)
    assert unit.counts(model, [batch], second).flops < unit.counts(model, [batch], first).flops
    assert [unit.stage_at(step) for step in (0, 1, 2, 5, 9)] == [first, first, second, second, second]
    assert unit.steps == 6


class Counted(Seq2SeqUnit):
    """Its own length, learning rates, loss, metrics, evaluation and identity."""

    @property
    def curriculum(self):
        (stage,) = self.recipe.curriculum
        return [replace(stage, last_step=3, schedule_steps=3)]

    def build_optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=1.0)

    def losses(self, model, batch, loss):
        losses = super().losses(model, batch, loss)
        return losses._replace(plain=2 * losses.plain)

    def metrics(self, batches):
        return {"rows": float(sum(len(batch.samples) for batch in batches))}

    def evaluate(self, model, loss, held_out, world):
        return {"held_out_loss": 0.5, "generated": "text"}

    def identity(self):
        return {**super().identity(), "counted": True}


def test_a_further_unit_needs_nothing_of_the_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "open_unit", Counted.open)
    recipe = replace(toy_recipe(tmp_path, dropout=0.0), evaluation=EvaluationConfig(every=2))
    outcome = train_quietly(recipe, source=ToySource(), held_out=ToySource())
    assert (outcome.step, outcome.finished) == (3, True)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [record["step"] for record in records] == [1, 2, 2, 3, 3]
    assert [record["rows"] for record in records if "rows" in record] == [6.0] * 3
    assert [record["generated"] for record in records if "generated" in record] == ["text"] * 2
    (manifest,) = tmp_path.glob("checkpoints/*/checkpoint.json")
    assert json.loads(manifest.read_text())["identity"]["counted"] is True
    monkeypatch.undo()
    plain = toy_recipe(tmp_path / "plain", dropout=0.0)
    train_quietly(plain, source=ToySource(), until=1)
    first = json.loads((tmp_path / "plain/metrics.jsonl").read_text().splitlines()[0])
    np.testing.assert_allclose(records[0]["loss"], 2 * first["loss"], rtol=1e-6)


PLAIN = toy_recipe("unused", dropout=0.0)

TWICE = replace(PLAIN, loss=LossConfig(r3f=R3FConfig()))


def test_r3f_is_two_passes_of_the_same_sizes():
    (stage,) = PLAIN.curriculum
    ((one,), (two,)) = (Seq2SeqUnit.sizes(recipe.model, stage, recipe.loss) for recipe in (PLAIN, TWICE))
    assert (one.passes, two.passes) == (1, 2)
    assert one._replace(passes=2) == two
    assert one.targets == PLAIN.data.target_length


def test_r3f_costs_twice_the_operations_and_counts_every_token_once():
    one, two = (open_unit(recipe, ToySource()) for recipe in (PLAIN, TWICE))
    (stage,) = PLAIN.curriculum
    batch, model = one.largest_batch(stage, one.special.vocab_size), one.build_model()
    single, double = (unit.counts(model, [batch], stage) for unit in (one, two))
    assert double.flops == 2 * single.flops
    assert replace(double, flops=0) == replace(single, flops=0)


def test_the_largest_batch_is_full_of_known_ids_and_always_the_same():
    unit = open_unit(PLAIN, ToySource())
    (stage,) = PLAIN.curriculum
    batch, again = (unit.largest_batch(stage, 24) for _ in range(2))
    assert batch.source_ids.shape == (2, 24)
    assert batch.labels.shape == batch.decoder_ids.shape == (2, 12)
    assert all(ids.min() >= 0 and ids.max() < 24 for ids in (batch.source_ids, batch.decoder_ids, batch.labels))
    assert batch.target_tokens == 24
    assert torch.equal(batch.source_ids, again.source_ids)


def test_a_start_that_the_data_does_not_have_is_refused():
    data = replace(PLAIN.data, decoder_start="<doc-s>")
    with pytest.raises(FarspanError, match=r"data.decoder_start is '<doc-s>', but the special tokens are <pad>, <bos>"):
        open_unit(replace(PLAIN, data=data), ToySource())
