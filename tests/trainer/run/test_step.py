"""Tests of an update, its times and its metrics."""

import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, make_trainer, toy_recipe
from trainer.data.curriculum import StageConfig
from trainer.data.loader import Loader
from trainer.data.mixture import Mixture
from trainer.model.loss import LossConfig
from trainer.model.patterns.block import Block
from trainer.optim.optimizer import OptimizerConfig
from trainer.optim.schedule import ScheduleConfig
from trainer.parallel import device
from trainer.run import step
from trainer.run.loop import SkippedUpdates
from trainer.run.step import Trainer


def batches_of(recipe, source=None) -> Loader:
    stages = recipe.curriculum
    return Loader(stages, [Mixture.of(source or ToySource())] * len(stages), recipe.run.seed)


def updated(trainer: Trainer, count: int = 1) -> list[dict]:
    records, batches, skipped = [], batches_of(trainer.unit.recipe), SkippedUpdates(trainer.unit.recipe.run)
    for _ in range(count):
        records.append(trainer.record(trainer.update(batches)))
        skipped.count(records[-1])
    return records


def weights(trainer: Trainer) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in trainer.model.parameters()]


def test_micro_batches_change_nothing_though_their_targets_are_uneven():
    found = []
    for micro in (6, 4, 1):
        trainer = make_trainer(toy_recipe("unused", dropout=0.0, micro_batch_size=micro))
        records = updated(trainer, 3)
        found.append((torch.nn.utils.parameters_to_vector(trainer.model.parameters()), records))
    for other, records in found[1:]:
        torch.testing.assert_close(other, found[0][0], atol=1e-5, rtol=1e-4)
        for name in ("loss", "grad_norm", "source_tokens", "target_tokens"):
            assert [r[name] for r in records] == pytest.approx([r[name] for r in found[0][1]], rel=1e-4)


def test_updates_are_those_of_adamw_on_the_clipped_mean_over_the_targets_of_the_step():
    recipe = toy_recipe("unused", dropout=0.0)
    # An eps as large as gradients are, or Adam would take no notice of how long they are.
    config = OptimizerConfig(learning_rate=1e-2, betas=(0.6, 0.8), eps=1e-2, weight_decay=0.1, clip_norm=0.2)
    recipe = replace(recipe, optimizer=config)
    trainer, twin = make_trainer(recipe), make_trainer(recipe).model
    records, batches = updated(trainer, 3), batches_of(recipe)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in twin.parameters() if p.dim() > 1]},
        {"params": [p for p in twin.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, betas=(0.6, 0.8), eps=1e-2, weight_decay=0.1)
    for number, record in enumerate(records):
        losses = [(twin(**batch.inputs).minimised, batch.target_tokens) for batch in batches.step(number)]
        loss = sum(value for value, _ in losses) / sum(tokens for _, tokens in losses)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.2)
        assert norm > 0.4
        assert record["loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert record["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
        for group in adamw.param_groups:
            group["lr"] = 1e-2 * number / recipe.schedule.warmup_steps
        for parameter in twin.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        adamw.step()
        adamw.zero_grad()
    torch.testing.assert_close(weights(trainer), [*twin.parameters()], atol=1e-5, rtol=1e-4)


def test_loss_falls():
    losses = [record["loss"] for record in updated(make_trainer(toy_recipe("unused", steps=60)), 60)]
    assert sum(losses[-5:]) / 5 < 0.9 * sum(losses[:5]) / 5


def test_smoothing_changes_what_is_minimised_and_not_what_is_reported():
    plain = toy_recipe("unused", dropout=0.0)
    smooth = replace(plain, loss=LossConfig(label_smoothing=0.2))
    trainers = [make_trainer(recipe) for recipe in (plain, smooth)]
    (one,), (other,) = (updated(trainer) for trainer in trainers)
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
    assert one["grad_norm"] != pytest.approx(other["grad_norm"], rel=1e-3)


def test_bf16_computes_close_to_fp32_over_float32_weights():
    losses = []
    for precision in ("fp32", "bf16"):
        trainer = make_trainer(toy_recipe("unused", dropout=0.0, precision=precision))
        losses.append([record["loss"] for record in updated(trainer, 3)])
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize("name", ["adamw", "adafactor", "muon"])
def test_a_gradient_that_is_not_finite_is_skipped_named_and_not_endlessly(name):
    recipe = toy_recipe("unused", max_skipped=3)
    trainer = make_trainer(replace(recipe, optimizer=replace(recipe.optimizer, name=name)))
    updated(trainer)
    states = trainer.optimizer.state.values()
    before, moments = weights(trainer), [x.clone() for state in states for x in state.values()]
    poison = torch.tensor(float("nan"))
    with torch.no_grad():
        kept = trainer.model.tokens.weight[5].clone()
        trainer.model.tokens.weight[5] = poison  # one of the 24 text tokens, so nearly all micro-batches have it
    (record,) = updated(trainer)
    assert record["loss"] is record["grad_norm"] is None
    step = batches_of(recipe).step(1)
    known = {(int(n), row.tobytes().hex()) for b in step for n, row in zip(b.samples, b.sequence_ids, strict=True)}
    assert {(sample["number"], sample["sequence_id"]) for sample in record["skipped"]} <= known
    with torch.no_grad():
        trainer.model.tokens.weight[5] = kept
    torch.testing.assert_close(weights(trainer), before, rtol=0, atol=0)
    torch.testing.assert_close([x for state in states for x in state.values()], moments, rtol=0, atol=0)
    assert "skipped" not in updated(trainer)[0]
    with torch.no_grad():
        trainer.model.tokens.weight[:] = poison
    with pytest.raises(FarspanError, match="3 updates in a row, up to step 6"):
        updated(trainer, 3)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_either_of_loss_and_gradient_alone_leaves_an_update_out(monkeypatch, where):
    trainer = make_trainer(toy_recipe("unused"))
    passed = trainer._pass

    def poisoned(*arguments):
        losses = passed(*arguments)
        if where == "loss":
            return losses._replace(plain=losses.plain * float("inf"))
        losses.minimised.register_hook(lambda gradient: gradient * float("nan"))
        return losses

    before = weights(trainer)
    with monkeypatch.context() as patched:
        patched.setattr(trainer, "_pass", poisoned)
        (record,) = updated(trainer)
    torch.testing.assert_close(weights(trainer), before, rtol=0, atol=0)
    assert record["loss"] is record["grad_norm"] is None
    assert [sample["number"] for sample in record["skipped"]] == list(range(6))  # whichever of them it was
    assert "skipped" not in updated(trainer)[0]


@pytest.mark.parametrize(("precision", "advised"), [("fp32", False), ("bf16", True)])
def test_a_recipe_can_ask_to_stop_at_the_first_and_a_precision_is_advised_only_where_it_is_another(precision, advised):
    trainer = make_trainer(toy_recipe("unused", non_finite="abort", precision=precision))
    with torch.no_grad():
        trainer.model.tokens.weight[:] = float("inf")
    said = r"step 1: loss or gradient is not finite \(samples 0 [0-9a-f]{32} data: sequence \d+; 1 "
    with pytest.raises(FarspanError, match=rf"{said}.*lower optimizer.learning_rate") as error:
        updated(trainer)
    assert ("set run.precision to fp32" in str(error.value)) == advised


def test_a_wish_to_stop_leaves_everything_as_it_is():
    trainer = make_trainer(toy_recipe("unused"))
    before = weights(trainer)
    assert trainer.update(batches_of(trainer.unit.recipe), stop=True) is None
    assert trainer.step == 0
    torch.testing.assert_close(weights(trainer), before, rtol=0, atol=0)


def test_loss_of_a_batch_has_neither_dropout_nor_smoothing():
    trainer = make_trainer(replace(toy_recipe("unused", dropout=0.5), loss=LossConfig(label_smoothing=0.2)))
    batches = batches_of(trainer.unit.recipe).step(0)
    trainer.model.eval()
    first = [trainer.loss(batch).item() for batch in batches]
    assert first == [trainer.model(**batch.inputs).plain.item() for batch in batches]
    # while updates have dropout in whatever mode they find the model
    assert updated(trainer)[0]["loss"] == updated(make_trainer(trainer.unit.recipe))[0]["loss"]


def test_stages_have_their_own_attention_and_learning_rate():
    recipe = toy_recipe("unused", dropout=0.0, steps=6)
    recipe = replace(recipe, model=replace(recipe.model, init_std=0.3))  # or attention does next to nothing
    second = StageConfig(steps=4, attention=Block(4), learning_rate=3e-3)
    staged = replace(recipe, stages=(StageConfig(steps=2), second))
    plain, trainer = make_trainer(recipe), make_trainer(staged)
    alike, changed = updated(plain, 3), updated(trainer, 3)
    assert [r["loss"] for r in changed[:2]] == [r["loss"] for r in alike[:2]]
    assert changed[2]["loss"] != alike[2]["loss"]
    assert [layer.attention.pattern for layer in trainer.model.encoder.layers] == [Block(4)] * 2
    factor = alike[2]["learning_rate"] / recipe.optimizer.learning_rate
    assert changed[2]["learning_rate"] == pytest.approx(3e-3 * factor)
    # what is computed in a stage is computed with its attention: fewer scores in smaller blocks
    rate = "model_tflops_per_second"
    assert changed[2][rate] * changed[2]["seconds"] < alike[2][rate] * alike[2]["seconds"]


def test_a_schedule_of_a_stage_is_counted_from_its_beginning():
    recipe = toy_recipe("unused", steps=6)
    own = StageConfig(steps=4, schedule=ScheduleConfig(warmup_steps=2))
    recipe = replace(recipe, schedule=ScheduleConfig(warmup_steps=0), stages=(StageConfig(steps=2), own))
    shares = [record["learning_rate"] / recipe.optimizer.learning_rate for record in updated(make_trainer(recipe), 6)]
    assert shares == pytest.approx([1, 5 / 6, 0, 1 / 2, 1, 1 / 2])


def test_every_micro_batch_of_every_stage_and_seed_has_its_own_dropout(monkeypatch):
    seeds = []
    for seed in (1, 2):
        recipe = toy_recipe("unused", seed=seed, steps=6)
        # other data, whose samples are numbered anew
        other = StageConfig(steps=4, data=replace(recipe.data, target_multiple=2))
        trainer = make_trainer(replace(recipe, stages=(StageConfig(steps=2), other)))
        passed = trainer._pass

        def noted(*arguments, passed=passed):
            seeds.append(torch.initial_seed())
            return passed(*arguments)

        monkeypatch.setattr(trainer, "_pass", noted)
        updated(trainer, 4)
    assert len(set(seeds)) == len(seeds) == 2 * 4 * 3


def trainer_that(work, monkeypatch) -> Trainer:
    """A trainer whose ``work`` precedes each change of the weights, and is given the number of the update."""
    trainer = make_trainer(toy_recipe("unused"))
    change_weights = trainer._change_weights
    monkeypatch.setattr(trainer, "_change_weights", lambda *batch: (work(trainer.step + 1), change_weights(*batch))[1])
    return trainer


@pytest.mark.parametrize("late", [False, True])
def test_an_update_has_its_own_seconds_whenever_it_is_read(monkeypatch, late):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def work(update):
        now[0] += 2.0**update

    trainer = trainer_that(work, monkeypatch)
    batches = batches_of(trainer.unit.recipe)
    updates, records = [], []
    for _ in range(3):
        updates.append(trainer.update(batches))
        now[0] += 100.0  # evaluation, checkpoints
        if not late:
            records.append(trainer.record(updates[-1]))
    records = records or [trainer.record(update) for update in updates]
    assert [record["seconds"] for record in records] == [2.0, 4.0, 8.0]


class Stream:
    """An emulated device: work is queued at once and done later; whoever reads its tensors waits for all of it."""

    def __init__(self, monkeypatch):
        self.now, self.idle_at = 100.0, 0.0  # seconds of the host's clock
        stream = self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at = max(stream.now, stream.idle_at)

            def synchronize(self):
                stream.now = max(stream.now, self.at)

            def elapsed_time(self, other):
                assert stream.now >= other.at, "asked before the event had passed"
                return 1e3 * (other.at - self.at)

        item = torch.Tensor.item

        def waited_for(tensor):
            stream.now = max(stream.now, stream.idle_at)
            return item(tensor)

        monkeypatch.setattr(torch.Tensor, "item", waited_for)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(device, "_pinned", lambda count: torch.empty(count, dtype=torch.float64))
        monkeypatch.setattr(step, "Timing", lambda _: device.Timing(torch.device("cuda")))
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def queue(self, seconds):
        self.idle_at = max(self.now, self.idle_at) + seconds


def test_metrics_of_a_device_wait_for_their_own_update_alone(monkeypatch):
    stream = Stream(monkeypatch)
    trainer = trainer_that(lambda update: stream.queue(2.0**update), monkeypatch)
    batches = batches_of(trainer.unit.recipe)
    first = trainer.update(batches)
    second = trainer.update(batches)
    assert stream.now == 100.0  # the host has queued both and waited for neither
    assert trainer.record(first)["seconds"] == 2.0
    assert stream.now == 102.0  # the device is at the second update
    assert trainer.record(second)["seconds"] == 4.0  # also right after the first
    assert stream.now == 106.0
    stream.queue(50.0)  # an evaluation
    assert trainer.record(trainer.update(batches))["seconds"] == 8.0
    stream.now += 30.0

    class Late:
        def step(self, step):
            stream.now += 3.0
            return batches.step(step)

    assert trainer.record(trainer.update(Late()))["seconds"] == 3.0 + 16.0  # the device stood idle for want of data


def test_a_device_reports_what_a_cpu_does(monkeypatch):
    expected = updated(make_trainer(toy_recipe("unused")), 3)
    stream = Stream(monkeypatch)
    found = updated(trainer_that(lambda update: stream.queue(1.0), monkeypatch), 3)
    for name in ("loss", "grad_norm", "target_tokens"):
        assert [record[name] for record in found] == [record[name] for record in expected]
