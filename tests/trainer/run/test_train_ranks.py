"""Runs of several processes that are stopped, killed or get NaN have the results of one process."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from io import StringIO

import pytest
import torch
from rich.console import Console

from corpora.errors import FarspanError
from tests.artefacts import make_corpus
from tests.trainer.distributed_ranks import on_ranks, start_ranks
from tests.trainer.toy import ToySource, metrics_of, signal_in_update, toy_recipe, train_quietly, weights_of
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import ParallelConfig
from trainer.run.step import Trainer
from trainer.run.train import train
from trainer.run_config import EvaluationConfig

DDP, FSDP = ParallelConfig(mode="ddp"), ParallelConfig(mode="fsdp")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Two corpora, each with its objective, 2 : 1."""
    folder = tmp_path_factory.mktemp("corpora")
    sources = [
        SourceConfig(
            name=objective, corpus=make_corpus(str(folder / objective), documents=30, seed=seed),
            objective=ObjectiveConfig(name=objective), weight=weight,
        )
        for seed, (objective, weight) in enumerate([("span", 2.0), ("principal_sentences", 1.0)])
    ]  # fmt: skip
    return DataConfig(mixture=tuple(sources), source_length=192, target_length=128, source_multiple=8)


def mixed_recipe(directory, data: DataConfig, parallel=DDP, **run):
    sizes = {"batch_size": 12, "micro_batch_size": 3, "steps": 100, "positions": (192, 128)}
    recipe = toy_recipe(directory, checkpoint_every=1000, **{**sizes, **run})
    return replace(recipe, data=data, parallel=parallel)


def stopped_run(world: World, recipe, at: int | None = None, source=None, held_out=None):
    """Run in float64; the last rank gets a SIGTERM during update ``at``. Outcome, and what rank 0 printed."""
    said = StringIO()
    console = Console(file=said, width=1000)
    torch.set_default_dtype(torch.float64)
    try:
        with signal_in_update(at if world.rank == world.size - 1 else None, signal.SIGTERM):
            outcome = train(recipe, world=world, source=source, held_out=held_out, console=console)
    finally:
        torch.set_default_dtype(torch.float32)
    return outcome, said.getvalue()


def losses(recipe) -> list[float]:
    return [
        value for record in metrics_of(recipe) for name, value in record.items() if name in ("loss", "held_out_loss")
    ]


@pytest.mark.parametrize("steps", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_a_run_is_the_same_when_stopped_by_a_signal_and_continued_at_another_world_size(tmp_path, mixed, steps):
    """Both objectives and both corpora are in it, and each corpus ends several times."""
    straight = mixed_recipe(tmp_path / "straight", mixed, steps=steps)
    outcome, _ = stopped_run(World.alone(), straight)
    assert outcome.finished
    broken = mixed_recipe(tmp_path / "broken", mixed, FSDP, steps=steps)
    for outcome, _ in on_ranks(2, stopped_run, broken, steps // 2):
        assert (outcome.step, outcome.finished) == (steps // 2, False)
    again = replace(broken, parallel=DDP)  # 4 micro-batches on 3 ranks
    (outcome, said), *_ = on_ranks(3, stopped_run, again)
    assert outcome.finished
    assert f"continuing after step {steps // 2}" in said
    assert losses(broken) == pytest.approx(losses(straight), rel=1e-9)
    learnt = weights_of(broken)
    assert {value.dtype for value in learnt.values()} == {torch.float64}
    torch.testing.assert_close(learnt, weights_of(straight), rtol=1e-9, atol=1e-9)


def test_a_signal_to_one_rank_stops_all_after_the_same_update(tmp_path):
    found = on_ranks(3, stopped_run, toy_recipe(tmp_path), 4, ToySource())
    assert [outcome.step for outcome, _ in found] == [4, 4, 4]
    assert "stopped by a signal to another process after step 4" in found[0][1]
    assert [said for _, said in found[1:]] == ["", ""]
    assert (tmp_path / "checkpoints/step-00000004/checkpoint.json").exists()


def test_sizes_that_do_not_come_out_even_never_hang(tmp_path):
    """5 samples in micro-batches of 2 over 4 ranks, of a source of 7; and 5 held-out ones."""
    recipes = (toy_recipe(tmp_path / name, batch_size=5, micro_batch_size=2, steps=6) for name in ("alone", "shared"))
    alone, shared = (replace(recipe, parallel=FSDP, evaluation=EvaluationConfig(every=4)) for recipe in recipes)
    sources = ToySource(7), ToySource(5)
    stopped_run(World.alone(), alone, None, *sources)
    on_ranks(4, stopped_run, shared, None, *sources)
    assert len(losses(alone)) == 8
    assert losses(shared) == pytest.approx(losses(alone), rel=1e-9)


def poisoned_run(world: World, recipe):
    """The loss of sample 13, in the third update of 6 each, is NaN."""
    made = Trainer._pass

    def passed(self, model, batch, *rest):
        found = made(self, model, batch, *rest)
        if self.step != 2 or 13 not in batch.samples:
            return found
        return found._replace(minimised=found.minimised * float("nan"), plain=found.plain * float("nan"))

    Trainer._pass = passed
    try:
        return train_quietly(recipe, world=world, source=ToySource())
    finally:
        Trainer._pass = made


@pytest.mark.parametrize("parallel", [pytest.param(DDP, marks=pytest.mark.slow), FSDP], ids=["ddp", "fsdp"])
def test_a_gradient_that_is_not_finite_on_one_rank_leaves_one_update_out_everywhere(tmp_path, parallel):
    recipe = replace(toy_recipe(tmp_path, steps=5), parallel=parallel)
    assert [outcome.finished for outcome in on_ranks(3, poisoned_run, recipe)] == [True] * 3
    records = metrics_of(recipe)
    assert [record["loss"] is None for record in records] == [False, False, True, False, False]
    named = records[2]["skipped"]
    assert [sample["number"] for sample in named] == [12, 13]  # its micro-batch of 2
    assert all(sample["origin"].startswith("data: sequence ") for sample in named)


def dying_run(world: World, recipe):
    try:
        with signal_in_update(8 if world.rank == 1 else None, signal.SIGKILL):
            train_quietly(recipe, world=world, source=ToySource())
    except FarspanError as error:
        return str(error)


@pytest.mark.parametrize("parallel", [pytest.param(DDP, marks=pytest.mark.slow), FSDP], ids=["ddp", "fsdp"])
def test_a_killed_rank_ends_the_job_with_a_message_and_the_restart_is_exact(tmp_path, parallel):
    recipe = replace(toy_recipe(tmp_path / "killed", steps=12, checkpoint_every=3), parallel=parallel)
    begin = time.monotonic()
    processes, results = start_ranks(3, dying_run, recipe)
    found = [results.get() for _ in range(2)]
    assert time.monotonic() - begin < 300  # long before anything times out
    for process in processes:
        process.join(10)
        process.kill()
    for _, message, error in found:
        assert "lost another process of the run" in message, error
    whole = toy_recipe(tmp_path / "whole", steps=12)
    train_quietly(whole, source=ToySource())
    train_quietly(recipe, source=ToySource())
    assert losses(recipe) == pytest.approx(losses(whole), rel=1e-6)


@pytest.mark.slow
def test_under_torchrun_a_signal_is_a_checkpoint_and_the_same_command_goes_on(tmp_path, mixed):
    """The signal goes to torchrun, which passes it on."""
    recipe = tmp_path / "recipe.toml"
    tables = "\n".join(
        f"[[data.mixture]]\nname = {json.dumps(source.name)}\ncorpus = {json.dumps(source.corpus)}\n"
        f"weight = {source.weight}\nobjective = {{ name = {json.dumps(source.objective.name)} }}"
        for source in mixed.mixture
    )
    recipe.write_text(
        f'extends = "tiny"\n[run]\ndirectory = {json.dumps(str(tmp_path / "run"))}\ndevice = "cpu"\nsteps = 100000\n'
        f"[data]\nsource_length = 512\ntarget_length = 256\n{tables}\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "pipelines", "train", str(recipe)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    said = tmp_path / "said"
    for start in range(2):
        with said.open("w") as output:
            running = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                end = time.monotonic() + 300
                while f"step {5 * start + 5}/" not in said.read_text():
                    assert running.poll() is None, said.read_text()
                    assert time.monotonic() < end
                    time.sleep(0.2)
                running.send_signal(signal.SIGTERM)
                running.wait(60)
            finally:
                running.kill()
        assert "stopped by SIGTERM after step" in said.read_text()
        assert ("continuing after step" in said.read_text()) == bool(start)
