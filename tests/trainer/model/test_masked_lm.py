"""Tests of masked language models, alone and in joint training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from objectives.api.examples import IGNORED
from tests.trainer.toy import toy_recipe
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, ModelConfig
from trainer.model.layers.heads import HeadsConfig
from trainer.model.layers.sublayers import FeedForwardConfig
from trainer.model.loss import CHUNK, LossConfig
from trainer.model.masked_lm import JointModel, MaskedLM
from trainer.model.patterns.block import Block
from trainer.model.positions import Learned

CONFIG = ModelConfig(
    width=16, heads=HeadsConfig(count=4), feed_forward=FeedForwardConfig(width=32), dropout=0.0, init_std=0.3,
    encoder=EncoderConfig(layers=2, positions=Learned(40), attention=Block(8)),
)  # fmt: skip


def test_loss_counts_asked_positions_only():
    model = build_model(CONFIG, 50, seed=0)
    assert isinstance(model, MaskedLM)
    model.bias.data.normal_()
    ids = torch.randint(0, 50, (2, 20))
    labels = torch.full((2, 20), IGNORED)
    labels[0, [1, 7]] = torch.tensor([3, 4])
    labels[1, 19] = 5
    spoken = model.logits(model.encode(ids)).log_softmax(-1)
    expected = -(spoken[0, 1, 3] + spoken[0, 7, 4] + spoken[1, 19, 5])
    torch.testing.assert_close(model(ids, labels).minimised, expected, atol=1e-4, rtol=1e-5)


def test_nothing_asked_is_a_loss_of_zero_with_zero_gradients():
    model = build_model(CONFIG, 50, seed=0)
    loss = model(torch.randint(0, 50, (1, 9)), torch.full((1, 9), IGNORED)).minimised
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or (p.grad == 0).all() for p in model.parameters())


VOCAB, WEIGHT = 30, 0.4


@pytest.fixture
def parts():
    config = toy_recipe("unused", dropout=0.0).model
    config = replace(config, init_std=0.3)
    return build_model(config, VOCAB, seed=0), build_model(replace(config, decoder=None, width=8), VOCAB + 2, seed=1)


@pytest.fixture
def batch():
    torch.manual_seed(0)
    ids, target, shown = (torch.randint(0, VOCAB, (2, width)) for width in (16, 8, 24))
    labels = torch.where(torch.rand(2, 24) < 0.3, shown, IGNORED)
    return {
        "source_ids": ids, "decoder_ids": target, "labels": target, "candidate_ids": shown,
        "candidate_padding_mask": torch.arange(24) < torch.tensor([[24], [20]]), "candidate_labels": labels,
        "target_counts": torch.tensor([40, 30]),
    }  # fmt: skip


def split(batch):
    own = {name: value for name, value in batch.items() if not name.startswith(("candidate", "target_counts"))}
    generator = {"source_ids": batch["candidate_ids"], "source_padding_mask": batch["candidate_padding_mask"]}
    return own, {**generator, "labels": batch["candidate_labels"]}


@pytest.mark.parametrize("loss", [LossConfig(), LossConfig(label_smoothing=0.1, z_loss=0.01)])
def test_the_loss_is_that_of_both_by_their_means(parts, batch, loss):
    model, generator = parts
    own, shown = split(batch)
    alone, beside = (part(**inputs, loss=loss) for part, inputs in ((model, own), (generator, shown)))
    mean = alone.minimised / 40 + WEIGHT * beside.minimised / 30
    expected = torch.autograd.grad(mean, [*model.parameters(), *generator.parameters()], materialize_grads=True)
    joint = JointModel(model, generator, WEIGHT)
    losses = joint(**batch, loss=loss)
    torch.testing.assert_close(losses.minimised / 40, mean)
    torch.testing.assert_close(losses.plain, alone.plain)
    found = torch.autograd.grad(losses.minimised / 40, [*model.parameters(), *generator.parameters()],
                                materialize_grads=True)  # fmt: skip
    torch.testing.assert_close(found, expected)


def test_held_out_batches_ask_nothing_of_the_generator(parts, batch):
    model, generator = parts
    own, _ = split(batch)
    torch.testing.assert_close(JointModel(model, generator, WEIGHT)(**own), model(**own))


def test_names_of_parameters_are_those_of_the_parts(parts):
    model, generator = parts
    names = {*model.state_dict(), *(f"generator.{name}" for name in generator.state_dict())}
    assert set(JointModel(model, generator, WEIGHT).state_dict()) == names


@pytest.mark.parametrize("chunk", [1, 5, CHUNK])
def test_scores_are_the_losses_of_the_asked_tokens(parts, batch, chunk, monkeypatch):
    monkeypatch.setattr("trainer.model.masked_lm.CHUNK", chunk)
    model, generator = parts
    assert isinstance(generator, MaskedLM)
    ids, real, labels = (batch[f"candidate_{name}"] for name in ("ids", "padding_mask", "labels"))
    scores = JointModel(model, generator, WEIGHT).score(ids, real, labels)
    logits = generator.logits(generator.encode(ids, real))
    expected = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
    torch.testing.assert_close(scores, expected)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.sum(), generator(ids, labels, real).plain)


def test_nothing_asked_is_no_score_and_no_loss(parts, batch):
    joint = JointModel(*parts, WEIGHT)
    nothing = torch.full_like(batch["candidate_labels"], IGNORED)
    assert not joint.score(batch["candidate_ids"], batch["candidate_padding_mask"], nothing).any()
    own, _ = split(batch)
    empty = joint(**batch | {"candidate_labels": nothing, "target_counts": torch.tensor([40, 0])})
    torch.testing.assert_close(empty, parts[0](**own))
