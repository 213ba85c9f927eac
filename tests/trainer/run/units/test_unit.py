"""Tests of the units of training."""

import json
from dataclasses import replace

import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.masked_folders import MaskedSource, encoder_recipe
from tests.trainer.toy import ToySource, toy_recipe, train_quietly
from trainer.data.curriculum import StageConfig
from trainer.metrics import batch_flops
from trainer.model.config import GeneratorConfig
from trainer.model.masked_lm import MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.seq2seq import Seq2Seq
from trainer.run import startup
from trainer.run.evaluation import open_held_out
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
    ((config, targets, _),) = unit.sizes(stage, recipe.loss)
    batch, again = (unit.largest_batch(stage, unit.special.vocab_size) for _ in range(2))
    built = unit.build_model()
    assert torch.equal(batch.source_ids, again.source_ids)
    assert 0 <= batch.source_ids.min() <= batch.source_ids.max() < unit.special.vocab_size
    rows, width = batch.source_ids.shape
    assert (rows, width) == (stage.micro_batch_size, stage.data.source_length)
    assert config == recipe.model
    assert batch.target_tokens == rows * targets
    assert batch.global_positions.sum() == rows
    counts = unit.counts(built, [batch, batch], stage)
    assert counts.source_tokens == 2 * batch.source_tokens
    assert counts.flops == 3 * 2 * batch_flops(recipe.model, unit.special.vocab_size, rows, width, rows * targets, 1)
    assert built(**batch.inputs, loss=recipe.loss).plain.isfinite()


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
        open_held_out(open_unit(recipe, right), source)


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
    """Its own length, learning rates, metrics and identity."""

    @property
    def curriculum(self):
        (stage,) = self.recipe.curriculum
        return [replace(stage, last_step=3, schedule_steps=3)]

    def metrics(self, batches):
        return {"rows": float(sum(len(batch.samples) for batch in batches))}

    def identity(self):
        return {**super().identity(), "counted": True}


def test_a_further_unit_needs_nothing_of_the_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(startup, "open_unit", Counted.open)
    outcome = train_quietly(toy_recipe(tmp_path), source=ToySource())
    assert (outcome.step, outcome.finished) == (3, True)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [(record["step"], record["rows"]) for record in records] == [(1, 6.0), (2, 6.0), (3, 6.0)]
    (manifest,) = tmp_path.glob("checkpoints/*/checkpoint.json")
    assert json.loads(manifest.read_text())["identity"]["counted"] is True
