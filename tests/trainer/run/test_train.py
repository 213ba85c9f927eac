"""Tests of runs, of runs that stop by signals or kills, and of runs that are extended."""

import json
import os
import signal
import threading
import time
from dataclasses import replace
from io import StringIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo  # in every fork otherwise, where optimisers first need it
from rich.console import Console

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, metrics_of, signal_in_update, toy_recipe, train_quietly, weights_of
from trainer.checkpoint.checkpoints import Checkpoints
from trainer.checkpoint.files import checkpoints_in, step_of
from trainer.checkpoint.run_files import find_faults
from trainer.optim.schedule import ScheduleConfig
from trainer.run.train import ECHO, Interruption, train
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
    torch.testing.assert_close(weights_of(broken), weights_of(straight), atol=1e-6, rtol=1e-5)
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
    save, saved = Checkpoints.save, []
    monkeypatch.setattr(Checkpoints, "save", lambda self, step, *more: saved.append(step) or save(self, step, *more))
    before = signal.getsignal(number)
    with signal_in_update(at, number):
        recipe = replace(toy_recipe(tmp_path), evaluation=EvaluationConfig(every=at))
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


def test_held_out_loss_is_measured_and_changes_no_training(tmp_path):
    plain = toy_recipe(tmp_path / "plain", steps=6)
    evaluated = replace(toy_recipe(tmp_path / "evaluated", steps=6), evaluation=EvaluationConfig(every=4, sequences=5))
    alone = run(plain)[2]
    _, said, metrics = run(evaluated, held_out=ToySource(9))
    held_out = [(record["step"], record["held_out_loss"]) for record in metrics if "held_out_loss" in record]
    assert [step for step, _ in held_out] == [4, 6]
    assert f"held-out loss {held_out[-1][1]:.4f}" in said
    assert losses([record for record in metrics if "loss" in record]) == losses(alone)


def test_data_that_does_not_suit_the_model_leaves_no_folder(tmp_path):
    with pytest.raises(FarspanError, match=r"remove the recipe's model.decoder"):
        run(toy_recipe(tmp_path), source=ToySource(encoder_only=True))
    assert not list(tmp_path.iterdir())


@pytest.fixture(autouse=True)
def usual_handlers():
    """A shell's background job, as a test session may be, ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_first_signal_is_a_wish_and_its_echo_is_the_same_one(clock):
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        assert stop.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        clock[0] += ECHO / 2
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == "SIGTERM"
    assert signal.getsignal(signal.SIGINT) == before


def test_a_later_signal_acts_as_ever(clock):
    with Interruption() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        clock[0] += ECHO
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.received == "SIGINT"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Dying(ToySource):
    """Kills its process ``delay`` seconds after it was asked for rows ``calls`` times."""

    def __init__(self, calls: int, delay: float) -> None:
        super().__init__()
        self._calls, self._delay = calls, delay

    def examples(self, indices, epochs=None):
        self._calls -= 1
        if self._calls == 0:
            threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return super().examples(indices)


def run_in_fork(recipe, source):
    torch.set_num_threads(1)
    train_quietly(recipe, source=source)
    os._exit(0)  # a fork must not run the test session's own exits


def exit_code(recipe, source):
    process = get_context("fork").Process(target=run_in_fork, args=(recipe, source))
    process.start()
    process.join(240)
    process.kill()
    return process.exitcode


def curve(recipe):
    return [(record["step"], record.get("loss")) for record in metrics_of(recipe)]


@pytest.mark.parametrize(("kills", "steps"), [(2, 8), pytest.param(8, 40, marks=pytest.mark.slow)])
def test_kills_at_random_moments_change_nothing(tmp_path, kills, steps):
    """Each process that is killed makes a few steps of 3 micro-batches, with a checkpoint after each."""
    options = {"steps": steps, "checkpoint_every": 1, "log_every": 100}
    straight, killed = (toy_recipe(tmp_path / name, **options) for name in ("straight", "killed"))
    assert exit_code(straight, ToySource()) == 0
    draw = np.random.default_rng(kills)
    for _ in range(kills):
        source = Dying(int(draw.integers(5, 13)), float(draw.uniform(0, 0.02)))
        assert exit_code(killed, source) == -signal.SIGKILL
        directory = Path(killed.run.directory)
        if checkpoints := checkpoints_in(directory):
            assert find_faults(directory, step_of(checkpoints[0]), None) == []
    assert exit_code(killed, ToySource()) == 0
    assert curve(killed) == curve(straight)
    assert [step for step, _ in curve(killed)] == list(range(1, steps + 1))
    torch.testing.assert_close(weights_of(killed), weights_of(straight), rtol=0, atol=0)


def extended(recipe, *steps):
    return replace(recipe, run=replace(recipe.run, extend=steps))


def test_a_finished_run_stays_as_it_is_but_for_what_is_missing(tmp_path):
    evaluated = replace(toy_recipe(tmp_path, steps=6), evaluation=EvaluationConfig(every=6, sequences=2))
    plain, held_out = replace(evaluated, evaluation=None), ToySource(5)
    assert run(evaluated, held_out=held_out)[0].finished

    def contents():
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {path.name: path.read_bytes() for path in files if path.name != "run.json"}  # which has the last start

    before = contents()
    outcome, said, _ = run(plain)
    assert (outcome.step, outcome.finished, "all 6 steps" in said) == (6, True, True)
    assert contents() == before
    (tmp_path / "summary.json").unlink()
    (tmp_path / "recipe.json").write_text("{")
    assert run(evaluated, held_out=held_out)[0].finished
    assert contents().keys() == before.keys()
    first, second = (json.loads(files["recipe.json"])["recipe"] for files in (before, contents()))
    assert second == first


def test_a_finished_run_is_extended_as_if_it_had_been_so_from_the_start(tmp_path):
    """Twice, the second time inside of the first extension; with the optimizer's state and held-out loss."""
    evaluation, held_out = EvaluationConfig(every=4, sequences=2), {"held_out": ToySource(9)}
    straight, grown = (
        replace(toy_recipe(tmp_path / name, steps=6, batch_size=2, dry_run=False), evaluation=evaluation)
        for name in ("straight", "grown")
    )
    outcome, said, _ = run(extended(straight, 3, 2), **held_out)
    assert (outcome.step, outcome.finished) == (11, True)
    assert "extended from 9 to 11 steps" in said
    assert run(grown, **held_out)[0].finished
    assert run(extended(grown, 3), until=7, **held_out)[0].finished is False
    outcome, said, _ = run(extended(grown, 3, 2), **held_out)
    assert "continuing after step 7" in said
    assert (outcome.step, outcome.finished) == (11, True)
    assert curve(grown) == curve(straight)
    torch.testing.assert_close(weights_of(grown), weights_of(straight), rtol=0, atol=0)
    rates = [record["learning_rate"] for record in metrics_of(grown) if "learning_rate" in record]
    assert f"learning rate is that of a run of 9 updates: {rates[6]:.2e} after {rates[5]:.2e}" in said
    assert f"and {rates[8]:.2e} at the end" in said
    assert rates[9] > rates[8]


def test_other_schedules_go_on(tmp_path):
    schedule = ScheduleConfig(shape="inverse_sqrt", warmup_steps=2)
    _, said, _ = run(extended(replace(toy_recipe(tmp_path, steps=6, dry_run=False), schedule=schedule), 2))
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
    _, said, _ = run(by_epochs, until=5)
    assert "0.7 epochs of 50 sequences: 6 updates of 6" in said
    outcome, said, _ = run(by_steps)
    assert outcome.finished
    assert "continuing after step 5" in said
