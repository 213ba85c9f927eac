"""Tests of runs that stop, by signals or kills, and of runs that are extended."""

from __future__ import annotations

import os
import signal
import threading
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
from tests.trainer.toy import ToySource, metrics_of, toy_recipe, weights_of
from trainer.checkpoint.files import checkpoints_in, step_of
from trainer.checkpoint.run_files import find_faults
from trainer.optim.schedule import ScheduleConfig
from trainer.run import train as signals
from trainer.run.train import ECHO, Interruption, train
from trainer.run_config import EvaluationConfig


@pytest.fixture(autouse=True)
def usual_handlers():
    """A shell's background job, as a test session may be, ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
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

    def examples(self, indices):
        self._calls -= 1
        if self._calls == 0:
            threading.Timer(self._delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
        return super().examples(indices)


def run(recipe, source):
    torch.set_num_threads(1)
    train(recipe, source=source, console=Console(file=StringIO()))
    os._exit(0)  # a fork must not run the test session's own exits


def exit_code(recipe, source):
    process = get_context("fork").Process(target=run, args=(recipe, source))
    process.start()
    process.join(240)
    process.kill()
    return process.exitcode


def curve(recipe):
    return [(record["step"], record["loss"]) for record in metrics_of(recipe)]


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
    for name, value in weights_of(straight).items():
        assert torch.equal(weights_of(killed)[name], value)


def run_on(recipe, **options):
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
    outcome, said = run_on(extended(straight, 3, 2), **held_out)
    assert (outcome.step, outcome.finished) == (11, True)
    assert "extended from 9 to 11 steps" in said
    assert run_on(grown, **held_out)[0].finished
    assert run_on(extended(grown, 3), until=7, **held_out)[0].finished is False
    outcome, said = run_on(extended(grown, 3, 2), **held_out)
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
    _, said = run_on(extended(recipe, 2))
    assert "the learning rate follows its inverse_sqrt schedule: 5.77e-03 after 6.32e-03" in said


def test_only_what_follows_may_be_changed(tmp_path):
    recipe = toy_recipe(tmp_path, steps=6, batch_size=2, dry_run=False)
    run_on(extended(recipe, 2), until=1)
    for other in (recipe, extended(recipe, 3), extended(recipe, 3, 2)):
        with pytest.raises(FarspanError, match=r"run.extend: checkpoint \[2\], now"):
            run_on(other)
    with pytest.raises(FarspanError, match=r"(?s)run.steps: checkpoint 6, now 9.*run.extend gives a run more steps"):
        run_on(replace(recipe, run=replace(recipe.run, steps=9, extend=(2,))))


def test_epochs_are_counted_in_the_sequences_of_the_data(tmp_path):
    """50 sequences, 6 an update: 0.7 epochs are 6 updates; a run of so many steps goes on with it."""
    by_steps = toy_recipe(tmp_path, steps=6, dry_run=False)
    by_epochs = replace(by_steps, run=replace(by_steps.run, steps=None, epochs=0.7))
    _, said = run_on(by_epochs, until=5)
    assert "0.7 epochs of 50 sequences: 6 updates of 6" in said
    outcome, said = run_on(by_steps)
    assert outcome.finished
    assert "continuing after step 5" in said
