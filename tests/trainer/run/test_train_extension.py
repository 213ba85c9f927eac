"""Runs that are given more steps, and runs whose length is a number of epochs."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from corpora.errors import FarspanError
from tests.trainer.left_behind import metrics_of, weights_of
from tests.trainer.toy import ToySource, toy_recipe
from trainer.optim.schedule import ScheduleConfig
from trainer.run.train import train
from trainer.run_config import EvaluationConfig


def run(recipe, **options):
    """Outcome and what was printed."""
    said = StringIO()
    return train(recipe, source=ToySource(), console=Console(file=said, width=1000), **options), said.getvalue()


def extended(recipe, *steps):
    return replace(recipe, run=replace(recipe.run, extend=steps))


def assert_same_run(one, other):
    assert [record.get("loss") for record in metrics_of(one)] == [record.get("loss") for record in metrics_of(other)]
    for name, value in weights_of(one).items():
        assert torch.equal(weights_of(other)[name], value), name


def test_a_finished_run_is_extended_as_if_it_had_been_so_from_the_start(tmp_path):
    """Twice, the second time inside of the first extension; with the optimizer's state and held-out loss."""
    straight, grown = (
        replace(
            toy_recipe(tmp_path / name, steps=6, batch_size=2, dry_run=False),
            evaluation=EvaluationConfig(every=4, sequences=2),
        )
        for name in ("straight", "grown")
    )
    held_out = {"held_out": ToySource(9)}
    outcome, said = run(extended(straight, 3, 2), **held_out)
    assert (outcome.step, outcome.finished) == (11, True)
    assert "extended from 9 to 11 steps" in said
    assert run(grown, **held_out)[0].finished
    assert run(extended(grown, 3), until=7, **held_out)[0].finished is False
    outcome, said = run(extended(grown, 3, 2), **held_out)
    assert "continuing after step 7" in said
    assert (outcome.step, outcome.finished) == (11, True)
    assert_same_run(straight, grown)
    rates = [record["learning_rate"] for record in metrics_of(grown) if "learning_rate" in record]
    assert f"learning rate is that of a run of 9 updates: {rates[6]:.2e} after {rates[5]:.2e}" in said
    assert f"and {rates[8]:.2e} at the end" in said
    assert rates[9] > rates[8]


def test_other_schedules_go_on(tmp_path):
    recipe = replace(
        toy_recipe(tmp_path, steps=6, dry_run=False), schedule=ScheduleConfig(shape="inverse_sqrt", warmup_steps=2)
    )
    _, said = run(extended(recipe, 2))
    assert "the learning rate follows its inverse_sqrt schedule: 5.77e-03 after 6.32e-03" in said


def test_only_what_follows_may_be_changed(tmp_path):
    recipe = toy_recipe(tmp_path, steps=6, batch_size=2, dry_run=False)
    run(extended(recipe, 2), until=1)
    for other in (recipe, extended(recipe, 3), extended(recipe, 3, 2)):
        with pytest.raises(FarspanError, match=r"run.extend: checkpoint \[2\], now"):
            run(other)
    with pytest.raises(FarspanError, match=r"(?s)run.steps: checkpoint 6, now 9.*run.extend gives a run more steps"):
        run(replace(recipe, run=replace(recipe.run, steps=9, extend=(2,))))


def test_epochs_are_counted_in_the_sequences_of_the_data(tmp_path):
    """50 sequences, 6 an update: 0.7 epochs are 6 updates; a run of so many steps goes on with it."""
    by_steps = toy_recipe(tmp_path, steps=6, dry_run=False)
    by_epochs = replace(by_steps, run=replace(by_steps.run, steps=None, epochs=0.7))
    _, said = run(by_epochs, until=5)
    assert "0.7 epochs of 50 sequences: 6 updates of 6" in said
    outcome, said = run(by_steps)
    assert outcome.finished
    assert "continuing after step 5" in said
