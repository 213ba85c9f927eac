"""A run that is killed at any moment, also during checkpoints, ends with the weights of an undisturbed run."""

from __future__ import annotations

import os
import signal
import threading
from io import StringIO
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo  # in every fork otherwise, where optimisers first need it
from rich.console import Console

from tests.trainer.left_behind import metrics_of, weights_of
from tests.trainer.toy import ToySource, toy_recipe
from trainer.checkpoint.files import checkpoints_in, step_of
from trainer.checkpoint.run_files import find_faults
from trainer.run.train import train


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
