"""Tests of estimates of a run: operations, hours of GPUs, and time on this machine."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.artefacts import make_corpus
from tests.trainer.toy import train_quietly
from trainer.command import run_command
from trainer.options import Training
from trainer.recipe import Recipe, load_recipe
from trainer.run.estimate import PEAKS, UTILISATION, Measured, Work, _gpu_lines, count_work, estimate_lines
from trainer.run.memory import count_parameters
from trainer.run.units import open_unit


def count(recipe: Recipe, vocab_size: int) -> Work:
    return count_work(recipe.curriculum, recipe.loss, vocab_size)


def test_operations_are_about_six_for_each_parameter_and_token():
    """The rule of thumb, for rows so short that attention hardly counts; half of the model sees source, half target."""
    recipe = load_recipe("longt5_tglobal_large", ["data.source_length=256", "data.target_length=260"])
    work = count(recipe, 1)
    tokens = work.positions
    assert tokens == 1_000_000 * recipe.run.batch_size * 256
    assert work.flops == pytest.approx(6 * count_parameters(recipe.model) * tokens, rel=0.15)


def test_stages_add_up_and_noise_passes_batches_twice():
    recipe = load_recipe("tiny")
    whole = count(recipe, 100)
    longer = replace(recipe, run=replace(recipe.run, extend=(60,)))
    assert count(longer, 100).flops == 2 * whole.flops
    assert count(load_recipe("tiny", ["loss.r3f={weight=1.0}"]), 100).flops == 2 * whole.flops


def test_hours_of_gpus():
    text = "\n".join(_gpu_lines(Work(3.6e18, 10, 1000, 1.0)))
    for name, peak in PEAKS.items():
        low, high = (3.6e18 / (peak * 1e12 * share) / 3600 for share in reversed(UTILISATION))
        assert f"{name} ({peak:g} TFLOP/s): {low:,.1f} to {high:,.1f} GPU hours" in text


def test_the_first_update_counts_once():
    measured = Measured(60.0, (1.0, 1.0, 2.0, 2.0), 0)
    low, high = measured.whole(Work(0, 100, 0, 0), 2)
    assert (low, high) == pytest.approx((0.9 * (60 + 200 * 1.25), 1.1 * (60 + 200 * 1.75)))


class Machine(TorchDispatchMode):
    """A machine on which each number that an operation reads or writes takes 10 ns, with its clock."""

    now = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        numbers = tree_leaves((args, kwargs, result))
        self.now += 1e-8 * sum(number.numel() for number in numbers if isinstance(number, Tensor))
        return result


@pytest.mark.parametrize(("length", "width"), [(512, 32), pytest.param(1024, 64, marks=pytest.mark.slow)])
def test_a_run_takes_as_long_as_was_estimated(tmp_path, monkeypatch, length, width):
    """Within a quarter, at two sizes, by the clock of a machine whose speed is constant."""
    machine = Machine()
    monkeypatch.setattr("trainer.parallel.device.time", SimpleNamespace(perf_counter=lambda: machine.now))
    monkeypatch.setattr("trainer.run.estimate.SECONDS", 1.0)
    recipe = load_recipe(
        "tiny",
        [
            f"data.corpus={make_corpus(str(tmp_path / 'corpus'), sequence_length=length)}",
            *('data.objective={name="span"}', f"data.source_length={length}", "data.target_length=512"),
            *(f"model.width={width}", "run.steps=12", f"run.directory={tmp_path / 'run'}"),
        ],
    )
    with machine:
        list(estimate_lines(recipe, 400))
        begun = machine.now
        train_quietly(recipe)
    low, high = json.loads((tmp_path / "run.estimate.json").read_text())["estimate"]["seconds"]
    assert (low + high) / 2 == pytest.approx(machine.now - begun, rel=0.25)


def test_a_run_is_estimated_on_its_data_and_compared_when_it_ends(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("trainer.run.estimate.SECONDS", 0.2)
    sets = (
        f"data.corpus={make_corpus(str(tmp_path / 'corpus'))}", 'data.objective={name="span"}',
        "data.source_length=512", "data.target_length=256", "model.width=32", "run.batch_size=2",
        "run.micro_batch_size=1", "run.epochs=0.2",
        "metrics.peak_tflops=1.0", "schedule.warmup_steps=0", f"run.directory={tmp_path / 'run'}", "run.dry_run=false",
    )  # fmt: skip
    with patch("trainer.run.estimate.open_unit", wraps=open_unit) as opening:
        run_command(Training(recipe="tiny", assignments=sets, estimate=0))
    opening.assert_called_once()
    first, *_, said = capsys.readouterr().out.splitlines()
    rows = open_unit(load_recipe("tiny", sets)).special.vocab_size
    assert f"{rows} token rows" in first
    assert re.match(r"this machine: [\d.]+ s to [\d.]+ s in one process, .* from \d+ micro-batches", said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "run.estimate.json"]
    run_command(Training(recipe="tiny", assignments=sets))
    assert re.search(r"^took [\d.]+ s, estimated [\d.]+ s to [\d.]+ s$", capsys.readouterr().err, re.MULTILINE)
    assert json.loads((tmp_path / "run.estimate.json").read_text())["actual"]["seconds"] > 0
