"""Held-out evaluation, and runs that keep their best checkpoint and end early, also after a stop or a kill."""

import json
import math
import os
import signal
from dataclasses import replace
from io import StringIO
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from corpora.errors import FarspanError
from objectives.api.examples import IGNORED
from tests.trainer.toy import ToySource, metrics_of, signal_in_update, toy_recipe
from trainer.checkpoint.selection import find_checkpoint
from trainer.conversion.convert import read_model
from trainer.data.config import DataConfig
from trainer.metrics import perplexity
from trainer.model.build import build_model
from trainer.parallel.distributed import World
from trainer.run import startup
from trainer.run import train as training
from trainer.run.evaluation import Evaluations, HeldOut, describe, evaluate
from trainer.run.loop import SkippedUpdates
from trainer.run_config import EvaluationConfig

DATA = DataConfig(source_length=24, target_length=12)


class Rank(World):
    """One of several that are asked in turn; ``sum`` adds to what the ranks before it had."""

    before: list[float]

    def sum(self, *numbers):
        self.before[:] = [old + new for old, new in zip(self.before or [0] * len(numbers), numbers, strict=True)]
        return tuple(self.before)


def toy_loss(batch):
    """A number that hangs on every label and on which source stands beside it."""
    asked = batch.labels != IGNORED
    return ((batch.labels + 0.1 * batch.source_ids.sum(1, keepdim=True)) * asked).sum()


def held_out(sizes=(9, 5), sequences=7, micro_batch_size=2):
    return [HeldOut(f"source{size}", ToySource(size), DATA, sequences, micro_batch_size) for size in sizes]


def by_hand(one: HeldOut) -> tuple[float, int]:
    rows = ToySource(len(one.source)).examples(np.arange(min(one.sequences, len(one.source))))
    total, tokens = 0.0, 0
    for source, length, target, asked in zip(
        rows.source_ids, rows.source_lengths, rows.target_ids, rows.target_lengths, strict=True
    ):
        total += sum(token + 0.1 * source[:length].sum() for token in target[:asked])
        tokens += asked
    return total, tokens


def test_each_source_and_all_by_their_tokens():
    sources = held_out()
    record = evaluate(torch.nn.Identity(), toy_loss, sources, World.alone())
    sums = [by_hand(one) for one in sources]
    for one, (total, tokens) in zip(sources, sums, strict=True):
        assert record[f"held_out_loss/{one.name}"] == pytest.approx(total / tokens, rel=1e-6)
    together = sum(total for total, _ in sums) / sum(tokens for _, tokens in sums)
    assert record["held_out_loss"] == pytest.approx(together, rel=1e-6)
    assert record["held_out_perplexity"] == perplexity(record["held_out_loss"])


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 5), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3), micro=st.integers(1, 4))
def test_any_number_of_ranks_finds_the_same_in_equally_many_passes(size, sizes, micro):
    sources = held_out([*sizes], sequences=6, micro_batch_size=micro)
    alone = evaluate(torch.nn.Identity(), toy_loss, sources, World.alone())
    before: list[float] = []
    passes = [0] * size
    for rank in range(size):

        def counted(batch, rank=rank):
            passes[rank] += 1
            return toy_loss(batch)

        world = Rank(rank, size, 0, 1, torch.device("cpu"))
        object.__setattr__(world, "before", before)
        found = evaluate(torch.nn.Identity(), counted, sources, world)
    assert found == pytest.approx(alone, rel=1e-12)  # the last rank has seen the sums of all
    assert len(set(passes)) == 1


def test_dropout_is_off_and_the_model_left_as_it_was():
    model = build_model(toy_recipe("unused", dropout=0.5).model, ToySource().special.vocab_size, seed=0)
    sources = held_out((9,))

    def loss(batch):
        assert not torch.is_grad_enabled()
        return model(**batch.inputs).plain

    model.train()
    state = torch.get_rng_state()
    first, again = (evaluate(model, loss, sources, World.alone()) for _ in range(2))
    assert first == again
    assert set(first) == {"held_out_loss", "held_out_perplexity"}
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_a_loss_that_is_not_finite_is_none_and_said():
    record = evaluate(torch.nn.Identity(), lambda batch: torch.tensor(math.nan), held_out(), World.alone())
    assert set(record.values()) == {None}
    assert describe(record) == "held-out loss not finite (source9 not finite, source5 not finite)"
    assert describe({"held_out_loss": 1.25, "held_out_perplexity": 3.49}) == "held-out loss 1.2500"


LOSSES = [4.0, 2.0, 3.0, 2.0, 2.5, 1.0, 1.0]  # of the evaluations after updates 2, 4, ..., 14


class Valued(Evaluations):
    """A held-out loss that depends on the number of updates alone; its process is killed in one evaluation."""

    death = 0

    def measure(self, trainer, *_):
        if trainer.step == self.death:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"held_out_loss": LOSSES[trainer.step // 2 - 1]}


def recipe_of(directory, steps=14, patience=None, **config):
    recipe = toy_recipe(directory, steps=steps, checkpoint_every=5, log_every=100, dry_run=False)
    return replace(
        recipe,
        evaluation=EvaluationConfig(every=2, patience=patience),
        checkpoint=replace(recipe.checkpoint, **{"best": "held_out_loss", "keep": 1, **config}),
    )


def run(recipe, **options):
    said = StringIO()
    console = Console(file=said, width=1000)
    outcome = training.train(recipe, source=ToySource(), held_out=ToySource(5), console=console, **options)
    return outcome, said.getvalue()


def evaluations(recipe):
    return [(record["step"], record["held_out_loss"]) for record in metrics_of(recipe) if "held_out_loss" in record]


def kept(recipe):
    names = sorted(os.listdir(f"{recipe.run.directory}/checkpoints"))
    return [int(name[5:]) for name in names if name.startswith("step-")]


@pytest.fixture(autouse=True)
def valued(monkeypatch):
    monkeypatch.setattr(startup, "Evaluations", Valued)


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
    assert "ended early after step 10; a larger evaluation.patience continues it" in said
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


def test_an_evaluation_that_a_signal_left_out_is_made_up_for(tmp_path):
    recipe = recipe_of(tmp_path, steps=5)
    with signal_in_update(4, signal.SIGTERM):
        assert run(recipe)[0].step == 4
    assert evaluations(recipe) == [(2, 4.0)]
    assert find_checkpoint(tmp_path, "best").name == "step-00000002"
    run(recipe, until=4)  # nothing but the evaluation is left to do
    assert evaluations(recipe) == [(2, 4.0), (4, 2.0)]
    assert find_checkpoint(tmp_path, "best").name == "step-00000004"
    run(recipe)
    assert kept(recipe) == [4, 5]


def test_a_metric_that_nothing_measures_is_refused_with_the_nearest(tmp_path):
    recipe = recipe_of(tmp_path, best="heldout_loss")
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
    with pytest.raises(FarspanError, match="3 updates in a row, up to step 6, had a loss or gradient that is not f"):
        updates.count(skipped(6))


@pytest.mark.parametrize(("samples", "end"), [(4, r"3 0{31}3\)"), (5, r"3 0{31}3; \.\.\.\)")])
def test_abort_ends_the_run_at_once_and_names_a_few_samples(samples, end):
    run = replace(toy_recipe("unused", max_skipped=3).run, non_finite="abort")
    said = rf"step 7: loss or gradient is not finite \(samples 0 0{{32}}; .*{end}; look"
    with pytest.raises(FarspanError, match=said):
        SkippedUpdates(run).count(skipped(7, samples))
