"""Runs that keep their best checkpoint and end early, with the same choice after being stopped or killed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from io import StringIO
from multiprocessing import get_context

import pytest
import torch
from rich.console import Console

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, metrics_of, toy_recipe
from trainer.checkpoint.selection import find_checkpoint
from trainer.conversion.convert import read_model
from trainer.run import train as training
from trainer.run.loop import SkippedUpdates
from trainer.run.units.seq2seq import Seq2SeqUnit
from trainer.run_config import EvaluationConfig

LOSSES = [4.0, 2.0, 3.0, 2.0, 2.5, 1.0, 1.0]  # of the evaluations after updates 2, 4, ..., 14


class Valued(Seq2SeqUnit):
    """A unit whose held-out loss depends on nothing but the number of updates; the recipe's seed is its first step."""

    death = 0
    signalled = 0

    def evaluate(self, model, loss, held_out, world):
        step = int(next(iter(self.steps_made(model))))
        if step == self.death:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"held_out_loss": LOSSES[step // 2 - 1]}

    def steps_made(self, model):
        return (state["step"] for state in self.optimizer.state.values())

    def build_optimizer(self, model):
        self.optimizer = super().build_optimizer(model)
        return self.optimizer


def recipe_of(directory, steps=14, patience=None, **config):
    recipe = toy_recipe(directory, steps=steps, checkpoint_every=5, log_every=100, dry_run=False)
    return replace(
        recipe,
        evaluation=EvaluationConfig(every=2, patience=patience),
        checkpoint=replace(recipe.checkpoint, best="held_out_loss", **{"keep": 1, **config}),
    )


def run(recipe, **options):
    said = StringIO()
    outcome = training.train(
        recipe, source=ToySource(), held_out=ToySource(5), console=Console(file=said, width=1000), **options
    )
    return outcome, said.getvalue()


def evaluations(recipe):
    return [(record["step"], record["held_out_loss"]) for record in metrics_of(recipe) if "held_out_loss" in record]


def kept(recipe):
    names = sorted(os.listdir(f"{recipe.run.directory}/checkpoints"))
    return [int(name[5:]) for name in names if name.startswith("step-")]


@pytest.fixture(autouse=True)
def valued(monkeypatch):
    monkeypatch.setattr(training, "open_unit", Valued.open)


def test_the_best_is_kept_and_named(tmp_path):
    recipe = recipe_of(tmp_path, steps=11)
    _, said = run(recipe)
    assert evaluations(recipe) == [(2, 4.0), (4, 2.0), (6, 3.0), (8, 2.0), (10, 2.5), (11, 2.5)]
    assert kept(recipe) == [4, 11]
    assert said.count("best so far") == 2
    assert find_checkpoint(tmp_path, "best").name == "step-00000004"
    assert [read_model(tmp_path, which).parent["step"] for which in (None, "newest", "best", "11")] == [11, 11, 4, 11]
    manifest = json.loads((tmp_path / "checkpoints/step-00000011/checkpoint.json").read_text())
    assert manifest["selection"] == {"metric": "held_out_loss", "evaluated": 11, "step": 4, "value": 2.0, "since": 4}


def test_patience_ends_the_run_as_finished(tmp_path):
    recipe = recipe_of(tmp_path, patience=3)
    outcome, said = run(recipe)
    assert (outcome.step, outcome.finished) == (10, True)
    assert "ended early after step 10: 3 evaluations in a row brought no better held_out_loss than" in said
    assert kept(recipe) == [4, 10]
    outcome, said = run(recipe)
    assert (outcome.step, outcome.finished) == (10, True)
    assert "ended early after step 10: nothing is left to do; a larger evaluation.patience continues it" in said
    patient = replace(recipe, evaluation=replace(recipe.evaluation, patience=4))
    assert run(patient)[0].step == 14
    assert kept(recipe) == [12, 14]


def dying(recipe, step):
    torch.set_num_threads(1)
    Valued.death = step
    run(recipe)
    os._exit(0)


@pytest.mark.parametrize("deaths", [(8,), pytest.param((4, 8, 10), marks=pytest.mark.slow)])
def test_a_run_killed_in_an_evaluation_chooses_the_same(tmp_path, deaths):
    straight, killed = (recipe_of(tmp_path / name, patience=3) for name in ("straight", "killed"))
    run(straight)
    for step in deaths:
        process = get_context("fork").Process(target=dying, args=(killed, step))
        process.start()
        process.join(120)
        assert process.exitcode == -signal.SIGKILL
    assert run(killed)[0].finished
    assert evaluations(killed) == evaluations(straight)
    assert kept(killed) == kept(straight)


def test_an_evaluation_that_a_signal_left_out_is_made_up_for(tmp_path, monkeypatch):
    made = training.Trainer.update

    def update(self, *arguments, **named):
        if self.step + 1 == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return made(self, *arguments, **named)

    recipe = recipe_of(tmp_path, steps=5)
    with monkeypatch.context() as patched:
        patched.setattr(training.Trainer, "update", update)
        assert run(recipe)[0].step == 4
    assert evaluations(recipe) == [(2, 4.0)]
    assert find_checkpoint(tmp_path, "best").name == "step-00000002"
    run(recipe, until=4)  # nothing but the evaluation is left to do
    assert evaluations(recipe) == [(2, 4.0), (4, 2.0)]
    assert find_checkpoint(tmp_path, "best").name == "step-00000004"
    run(recipe)
    assert kept(recipe) == [4, 5]


def test_a_metric_that_nothing_measures_is_refused_with_the_nearest(tmp_path):
    recipe = recipe_of(tmp_path)
    recipe = replace(recipe, checkpoint=replace(recipe.checkpoint, best="heldout_loss"))
    with pytest.raises(FarspanError, match=r"'heldout_loss' \(did you mean 'held_out_loss'\?\); evaluations measure h"):
        run(recipe)


@pytest.mark.parametrize(
    ("best", "patience", "message"),
    [
        ("held_out_loss", None, "nothing is evaluated; add an evaluation section"),
        (None, 3, "no metric chooses the best checkpoint; set checkpoint.best"),
        (None, 0, "evaluation.patience is 0; it must be at least 1"),
    ],
)
def test_settings_that_choose_nothing_are_refused(tmp_path, best, patience, message):
    recipe = toy_recipe(tmp_path)
    with pytest.raises(FarspanError, match=message):
        evaluation = None if patience is None else EvaluationConfig(patience=patience)
        replace(recipe, evaluation=evaluation, checkpoint=replace(recipe.checkpoint, best=best))


# The limit on skipped updates

SAMPLES = [{"number": number, "sequence_id": f"{number:032x}"} for number in range(6)]


def skipped(step: int, samples: int = 1) -> dict:
    return {"step": step, "loss": None, "skipped": SAMPLES[:samples]}


def test_only_updates_in_a_row_count():
    updates = SkippedUpdates(toy_recipe("unused", max_skipped=3).run)
    for step in (1, 2, 4, 5):
        updates.count(skipped(step))
        if step == 2:
            updates.count({"step": 3, "loss": 1.0})
    with pytest.raises(
        FarspanError, match="3 updates in a row, up to step 6, had a loss or gradient that is not finite"
    ):
        updates.count(skipped(6))


@pytest.mark.parametrize(("samples", "end"), [(4, r"3 0{31}3\)"), (5, r"3 0{31}3; \.\.\.\)")])
def test_abort_ends_the_run_at_once_and_names_a_few_samples(samples, end):
    run = replace(toy_recipe("unused", max_skipped=3).run, non_finite="abort")
    with pytest.raises(
        FarspanError, match=rf"step 7: loss or gradient is not finite \(samples 0 0{{32}}; .*{end}; look"
    ):
        SkippedUpdates(run).count(skipped(7, samples))
