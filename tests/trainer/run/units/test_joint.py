"""Joint training against the same choice made beforehand, and against its own parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from corpora.schemas.corpus import Corpus
from objectives.api.examples import IGNORED
from objectives.api.protocol import Tools, equip, load_objective
from tests.artefacts import small_tokenizer
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.joint_parts import LENGTH, SEED, data_of, make_generator, make_rows, open_rows, small_model
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig
from trainer.data.curriculum import Stage
from trainer.data.generator_masks import Candidates
from trainer.data.loader import Loader
from trainer.data.masked_corpus import MaskedCorpus
from trainer.data.mixture import Mixture
from trainer.model.masked_lm import JointModel
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import ParallelConfig, apply_parallel, reduction_context
from trainer.run.units.joint import JointBatches
from trainer.scorer.generator import Generator
from trainer.scorer.models import FoundModel
from trainer.scorer.scorers import MaskedLMScorer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> str:
    return make_rows(tmp_path_factory.mktemp("joint") / "corpus")


@pytest.fixture
def generator() -> Generator:
    return make_generator()


def scorer_of(generator: Generator) -> MaskedLMScorer:
    found = FoundModel(
        "generator", "fingerprint", small_tokenizer().fingerprint, generator.special, LENGTH, lambda: generator.model
    )
    return MaskedLMScorer(found, "cpu", "float32", None)


def loader_of(source, data: DataConfig, batch_size: int = 4, micro: int = 2, world_size: int = 1, rank: int = 0):
    recipe = toy_recipe("unused", steps=20, batch_size=batch_size, micro_batch_size=micro)
    stage: Stage = replace(recipe.curriculum[0], data=data)
    return Loader([stage], [Mixture.of(source)], SEED, rank, world_size)


def joint_batches(generator: Generator, data: DataConfig, **sizes: int) -> JointBatches:
    source = Candidates(open_rows(data, generator))
    model = JointModel(small_model(source.special.vocab_size, decoder=True), generator.model, weight=1.0)
    loader = loader_of(source, data, **sizes)
    return JointBatches(loader, loader, model, World.alone(), "fp32")


@pytest.mark.parametrize("across_documents", [True, False])
def test_given_the_weights_the_batches_are_those_of_the_frozen_scorer(corpus, generator, across_documents):
    data = replace(data_of(corpus), across_documents=across_documents)
    objective = load_objective("model_based", "bart_ls", {"density": 0.1})
    frozen = MaskedCorpus.of_objective(
        Corpus(corpus), equip(objective, Tools(small_tokenizer(), scorer_of(generator))), SEED,
        segment_ids=not across_documents,
    )  # fmt: skip
    expected = loader_of(frozen, data)
    joint = joint_batches(generator, data)
    for step in range(4):
        for batch, plain in zip(joint.step(step), expected.step(step), strict=True):
            assert batch.target_tokens == plain.target_tokens > 0
            for name, value in plain.inputs.items():
                torch.testing.assert_close(batch.inputs[name], value, rtol=0, atol=0)


def test_counts_and_losses_are_of_the_whole_step(corpus, generator):
    data = data_of(corpus)
    found = []
    for micro in (1, 2, 4):
        joint = joint_batches(generator, data, micro=micro)
        batches = joint.step(0)
        targets = sum(batch.target_tokens for batch in batches)
        candidates = sum(int((batch.candidate_labels != IGNORED).sum()) for batch in batches)
        assert all(batch.target_counts.tolist() == [targets, candidates] for batch in batches)
        assert candidates > targets
        model = joint._model.eval()
        losses = [model(**batch.inputs) for batch in batches]
        both, own = (sum(getattr(one, name).item() for one in losses) / targets for name in ("minimised", "plain"))
        assert both - own == pytest.approx(batches[0].generator_loss, rel=1e-4)
        found.append((both, own, batches[0].generator_loss))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


def test_the_generator_learns_and_chooses_anew(corpus, generator):
    joint = joint_batches(generator, data_of(corpus), micro=4)
    model = joint._model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    (begun,) = joint.step(0)
    for _ in range(15):
        (batch,) = joint.step(0)
        optimizer.zero_grad()
        (model.train()(**batch.inputs).minimised / batch.target_tokens).backward()
        optimizer.step()
    (ended,) = joint.step(0)
    assert ended.generator_loss < 0.7 * begun.generator_loss
    assert torch.equal(begun.candidate_ids, ended.candidate_ids)
    assert not torch.equal(begun.labels, ended.labels)


def test_a_rank_without_samples_asks_nothing(corpus, generator):
    data = data_of(corpus)
    source = Candidates(open_rows(data, generator))
    model = JointModel(small_model(source.special.vocab_size, decoder=True), generator.model, weight=1.0)
    asked = []
    for rank in range(2):
        loader = loader_of(source, data, batch_size=3, micro=1, world_size=2, rank=rank)
        batches = JointBatches(loader, loader, model, World.alone(), "fp32").step(0)
        asked += [(batch.target_tokens > 0, (batch.candidate_labels != IGNORED).any().item()) for batch in batches]
        for batch in batches:
            losses = model(**batch.inputs)
            losses.minimised.backward()
            assert bool(batch.target_tokens) == bool(losses.minimised) == bool(losses.plain)
    assert sorted(asked) == [(False, False)] + [(True, True)] * 3


def test_losses_that_are_not_finite_leave_the_choice_and_reach_training(corpus, generator):
    joint = joint_batches(generator, data_of(corpus))
    with torch.no_grad():
        generator.model.bias.fill_(float("nan"))
    batch = joint.step(0)[0]
    assert batch.target_tokens
    losses = joint._model(**batch.inputs)
    assert losses.plain.isfinite()
    assert losses.minimised.isnan()


def gradients_on_a_rank(world: World, mode: str, corpus: str, generator: Generator):
    """Of one step, whole and by name, and what each of the rank's samples was."""
    data = data_of(corpus)
    source = Candidates(open_rows(data, generator))
    model = JointModel(small_model(source.special.vocab_size, decoder=True), generator.model, weight=0.5)
    parallel = ParallelConfig(mode=mode)
    called = apply_parallel(model, parallel, world, "fp32")
    loader = loader_of(source, data, batch_size=3, micro=1, world_size=world.size, rank=world.rank)
    batches = JointBatches(loader, loader, model, world, "fp32").step(0)
    for number, batch in enumerate(batches):
        with reduction_context(called, parallel, last=number == len(batches) - 1):
            (called(**batch.inputs).minimised * world.size / batch.target_counts[0]).backward()
    # Some ranks hold nothing of a small parameter, but all have to gather it.
    shares = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    whole = {
        name: share.full_tensor() if mode == "fsdp" and world.size > 1 else share for name, share in shares.items()
    }
    seen = {int(batch.samples[0]): batch.inputs for batch in batches if batch.target_tokens}
    return {name: gradient.detach().numpy() for name, gradient in whole.items()}, {
        sample: {name: None if x is None else x.numpy() for name, x in inputs.items()}
        for sample, inputs in seen.items()
    }


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_ranks_choose_and_learn_the_same(mode, corpus, generator):
    """Three samples on two ranks: one of them asks nothing in its last micro-batch."""
    arguments = mode, corpus, generator
    ranks = on_ranks(2, gradients_on_a_rank, *arguments)
    expected, samples = gradients_on_a_rank(World.alone(), *arguments)
    np.testing.assert_equal(ranks[0][1] | ranks[1][1], samples)
    assert len(samples) == 3
    for gradients, _ in ranks:
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, expected[name], rtol=1e-3, atol=1e-5)
