from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from corpora.errors import FarspanError
from tests.trainer.toy import SPECIAL, ToySource, toy_recipe
from trainer.data import Loader
from trainer.loop import MAX_SKIPPED, Trainer
from trainer.model.build import build_model


def make_trainer(recipe, source=None) -> Trainer:
    run = recipe.run
    model = build_model(recipe.model, SPECIAL.vocab_size, run.seed)
    loader = Loader(source or ToySource(), recipe.data, run.batch_size, run.micro_batch_size, run.seed)
    return Trainer(model, loader, recipe, torch.device("cpu"))


def test_micro_batches_change_nothing_though_their_targets_are_uneven():
    weights = []
    for micro in (6, 4, 1):
        trainer = make_trainer(toy_recipe("unused", dropout=0.0, micro_batch_size=micro))
        records = [trainer.update() for _ in range(3)]
        weights.append((torch.nn.utils.parameters_to_vector(trainer.model.parameters()), records))
    for other, records in weights[1:]:
        torch.testing.assert_close(other, weights[0][0], atol=1e-5, rtol=1e-4)
        for name in ("loss", "grad_norm", "source_tokens", "target_tokens"):
            assert [r[name] for r in records] == pytest.approx([r[name] for r in weights[0][1]], rel=1e-4)


def test_a_step_is_adam_on_the_mean_over_the_targets_of_the_step():
    recipe = toy_recipe("unused", dropout=0.0)
    recipe = replace(recipe, optimizer=replace(recipe.optimizer, clip_norm=0.0, weight_decay=0.0))
    trainer, twin = make_trainer(recipe), make_trainer(recipe)
    batches = twin.loader.step(0)
    loss = sum(twin.model(**batch.inputs).minimised for batch in batches) / sum(
        batch.target_tokens for batch in batches
    )
    loss.backward()
    record = trainer.update()
    assert record["loss"] == pytest.approx(loss.item(), rel=1e-6)
    gradients = [p.grad for p in twin.model.parameters() if p.grad is not None]
    assert record["grad_norm"] == pytest.approx(torch.nn.utils.get_total_norm(gradients).item(), rel=1e-5)
    # Adam's first step is the learning rate times the sign of the gradient, as long as the gradient exceeds eps.
    rate = recipe.optimizer.learning_rate / recipe.schedule.warmup_steps
    for before, after in zip(twin.model.parameters(), trainer.model.parameters(), strict=True):
        if before.grad is not None:
            expected = before - rate * before.grad / (before.grad.abs() + recipe.optimizer.eps)
            torch.testing.assert_close(after, expected, atol=1e-6, rtol=0)


def test_loss_falls():
    trainer = make_trainer(toy_recipe("unused", steps=60))
    losses = [trainer.update()["loss"] for _ in range(60)]
    assert sum(losses[-5:]) / 5 < 0.9 * sum(losses[:5]) / 5


def test_bf16_computes_close_to_fp32_over_float32_weights():
    losses = []
    for precision in ("fp32", "bf16"):
        trainer = make_trainer(toy_recipe("unused", dropout=0.0, precision=precision))
        losses.append([trainer.update()["loss"] for _ in range(3)])
        assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def test_a_gradient_that_is_not_finite_is_skipped_named_and_not_endlessly():
    trainer = make_trainer(toy_recipe("unused"))
    trainer.update()
    before = [p.clone() for p in trainer.model.parameters()]
    poison = torch.tensor(float("nan"))
    with torch.no_grad():
        kept = trainer.model.tokens.weight[5].clone()
        trainer.model.tokens.weight[5] = poison  # one of the 24 text tokens, so nearly all micro-batches have it
    record = trainer.update()
    assert record["loss"] is record["grad_norm"] is None
    assert set(record["skipped"]) <= {row.tobytes().hex() for b in trainer.loader.step(1) for row in b.sequence_ids}
    with torch.no_grad():
        trainer.model.tokens.weight[5] = kept
    assert all(torch.equal(old, new) for old, new in zip(before, trainer.model.parameters(), strict=True))
    assert "skipped" not in trainer.update()
    with torch.no_grad():
        trainer.model.tokens.weight[:] = poison
    for _ in range(MAX_SKIPPED - 1):
        trainer.update()
    with pytest.raises(FarspanError, match="updates in a row"):
        trainer.update()


def test_evaluation_has_no_dropout_and_no_order():
    trainer = make_trainer(toy_recipe("unused", dropout=0.5))
    batches = trainer.loader.first(7)
    assert [len(batch.samples) for batch in batches] == [2, 2, 2, 1]
    loss = trainer.evaluate(batches)
    assert loss == trainer.evaluate(batches)
    assert loss == pytest.approx(trainer.evaluate(batches[::-1]), rel=1e-6)
