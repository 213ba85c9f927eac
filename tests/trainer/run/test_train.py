from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, metrics_of, toy_recipe, weights_of
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.model.config import ModelConfig
from trainer.run.step import Trainer
from trainer.run.train import train
from trainer.run_config import EvaluationConfig


def run(recipe, **options):
    """Outcome, what was printed, and the metrics by step."""
    said = StringIO()
    outcome = train(recipe, **{"source": ToySource(), **options}, console=Console(file=said, width=1000))
    return outcome, said.getvalue(), metrics_of(recipe)


def losses(metrics):
    return [record["loss"] for record in metrics]


def test_a_run_in_two_parts_is_the_run_in_one(tmp_path):
    """50 sequences and 6 a step: the break lies inside an epoch; dropout is on."""
    straight, broken = (toy_recipe(tmp_path / name, steps=24) for name in ("straight", "broken"))
    outcome, said, metrics = run(straight)
    assert (outcome.step, outcome.finished) == (24, True)
    assert [record["step"] for record in metrics] == list(range(1, 25))
    assert "step 24/24  loss" in said
    assert run(broken, until=12)[0].finished is False
    torch.manual_seed(999)
    outcome, said, resumed = run(broken)
    assert outcome.finished
    assert "continuing after step 12" in said
    assert [record["step"] for record in resumed] == list(range(1, 25))
    assert losses(resumed) == pytest.approx(losses(metrics), rel=1e-6)
    for name, value in weights_of(straight).items():
        torch.testing.assert_close(weights_of(broken)[name], value, atol=1e-6, rtol=1e-5)
    outcome, said, _ = run(broken, until=99)
    assert outcome.step == 24
    assert "all 24 steps of the run in" in said


def test_a_damaged_checkpoint_costs_steps_not_the_run(tmp_path):
    recipe = toy_recipe(tmp_path, steps=20, checkpoint_every=5, log_every=100)
    whole = run(recipe)[2]
    for step in (20, 15):
        (path,) = (tmp_path / f"checkpoints/step-000000{step}/model").iterdir()
        path.write_bytes(path.read_bytes()[:-1])
    _, said, again = run(recipe)
    assert said.count("is damaged") == 2
    assert "continuing after step 10" in said
    assert losses(again) == pytest.approx(losses(whole), rel=1e-6)


@pytest.mark.parametrize(("number", "at"), [(signal.SIGINT, 4), (signal.SIGTERM, 10)])
def test_a_signal_is_one_checkpoint_after_the_update_and_nothing_else(tmp_path, monkeypatch, number, at):
    """Also where there is a checkpoint of that update anyhow; what is held out would take the time that is left."""
    made, save, saved = Trainer.update, Checkpoints.save, []

    def update(self, *arguments, **named):
        if self.step + 1 == at:
            os.kill(os.getpid(), number)
        return made(self, *arguments, **named)

    monkeypatch.setattr(Trainer, "update", update)
    monkeypatch.setattr(Checkpoints, "save", lambda self, step, *more: saved.append(step) or save(self, step, *more))
    recipe = replace(toy_recipe(tmp_path), evaluation=EvaluationConfig(every=at))
    before = signal.getsignal(number)
    outcome, said, metrics = run(recipe, held_out=ToySource(9))
    assert (outcome.step, outcome.finished, saved) == (at, False, [at])
    assert [record["step"] for record in metrics] == list(range(1, at + 1))
    assert f"stopped by {number.name} after step {at}" in said
    assert signal.getsignal(number) == before
    manifest = json.loads((tmp_path / f"checkpoints/step-{at:08d}/checkpoint.json").read_text())
    assert (manifest["step"], manifest["samples"]) == (at, 6 * at)


def test_metrics_after_a_kill_are_whole_and_without_repetition(tmp_path):
    recipe = toy_recipe(tmp_path, checkpoint_every=4)
    run(recipe, until=4)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "loss": 1.0}\n{"step": 6, "lo')
    assert [record["step"] for record in run(recipe, until=6)[2]] == [1, 2, 3, 4, 5, 6]


def test_metrics_count_real_and_padded(tmp_path):
    first, record = run(toy_recipe(tmp_path), until=2)[2]
    assert first["learning_rate"] == 0
    assert 0 < record["source_tokens"] < record["source_positions"]
    assert record["source_positions"] % 8 == 0
    assert 0 < record["target_tokens"] < record["target_positions"]
    assert record["learning_rate"] == pytest.approx(1e-2 / 5)
    assert record["model_tflops_per_second"] > 0
    assert record["source_tokens_per_second"] == pytest.approx(record["source_tokens"] / record["seconds"])


def test_held_out_loss_is_measured_and_changes_no_training(tmp_path):
    plain = toy_recipe(tmp_path / "plain", steps=6)
    evaluated = replace(toy_recipe(tmp_path / "evaluated", steps=6), evaluation=EvaluationConfig(every=4, sequences=5))
    alone = run(plain)[2]
    _, said, metrics = run(evaluated, held_out=ToySource(9))
    held_out = [(record["step"], record["held_out_loss"]) for record in metrics if "held_out_loss" in record]
    assert [step for step, _ in held_out] == [4, 6]
    assert f"held-out loss {held_out[-1][1]:.4f}" in said
    assert losses([record for record in metrics if "loss" in record]) == losses(alone)


def test_an_encoder_alone_trains(tmp_path):
    recipe = toy_recipe(tmp_path, steps=40)
    recipe = replace(recipe, model=replace(recipe.model, decoder=None))
    found = losses(run(recipe, source=ToySource(encoder_only=True))[2])
    assert found[-1] < found[0]


def test_another_recipe_or_corpus_in_the_same_directory_is_refused(tmp_path):
    run(toy_recipe(tmp_path), until=1)
    with pytest.raises(FarspanError, match=r"run.seed: checkpoint 42, now 1"):
        run(toy_recipe(tmp_path, seed=1))
    with pytest.raises(FarspanError, match=r"corpus.data.fingerprint: checkpoint 'toy', now 'other'"):
        run(toy_recipe(tmp_path), source=ToySource(fingerprint="other"))


@pytest.mark.parametrize(
    ("source", "changes", "said"),
    [
        (ToySource(0), {}, "holds no sequence"),
        (ToySource(encoder_only=True), {}, "remove the recipe's model.decoder"),
        (ToySource(), {"model": {"decoder": None}}, "add a model.decoder section"),
        (
            ToySource(),
            {"data": {"decoder_start": "<start>"}},
            "data.decoder_start is '<start>', but the special tokens are <pad>",
        ),
    ],
)
def test_data_that_does_not_suit_the_model_is_refused_at_once(tmp_path, source, changes, said):
    recipe = toy_recipe(tmp_path)
    for section, values in changes.items():
        recipe = replace(recipe, **{section: replace(getattr(recipe, section), **values)})
    assert isinstance(recipe.model, ModelConfig)
    with pytest.raises(FarspanError, match=said):
        run(recipe, source=source)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a device that is there")
def test_a_device_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FarspanError, match="finds no CUDA device"):
        run(toy_recipe(tmp_path, device="cuda"))
