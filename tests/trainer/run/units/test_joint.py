"""Joint training against the same choice made beforehand, its runs, and what becomes of both models."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.examples import IGNORED
from objectives.api.protocol import Tools, equip, load_objective
from objectives.api.special_tokens import BEGIN, END, SpecialTokens
from tests.artefacts import small_tokenizer
from tests.object_store import upload
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.joint_parts import LENGTH, SEED, data_of, make_rows, open_rows, small_model
from tests.trainer.toy import make_trainer, toy_recipe
from trainer.checkpoint.run_files import keep_recipe, read_tokenizer, tokenizer_contents
from trainer.checkpoint.state import load_tensors
from trainer.conversion.convert import read_model
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.curriculum import Stage
from trainer.data.loader import Loader
from trainer.data.masked_corpus import MaskedCorpus
from trainer.data.mixture import Mixture
from trainer.metrics import Counts, forward_flops
from trainer.model.build import build_model
from trainer.model.config import EncoderConfig, GeneratorConfig
from trainer.model.masked_lm import JointModel
from trainer.model.patterns.full import Full
from trainer.model.positions import Learned
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import ParallelConfig, apply_parallel, reduction_context
from trainer.run.train import train
from trainer.run.units.joint import JointBatches, JointUnit
from trainer.run_config import EvaluationConfig
from trainer.scorer.models import FoundModel, Generator, find_model, open_generator
from trainer.scorer.scorers import MaskedLMScorer


def loader_of(source, data: DataConfig, batch_size: int = 4, micro: int = 2, world_size: int = 1, rank: int = 0):
    recipe = toy_recipe("unused", steps=20, batch_size=batch_size, micro_batch_size=micro)
    stage: Stage = replace(recipe.curriculum[0], data=data)
    return Loader([stage], [Mixture.of(source)], SEED, rank, world_size)


def joint_model(generator: Generator, data: DataConfig, weight: float = 1.0):
    """Both models, and the rows from which they choose."""
    source = open_rows(data, generator).view_candidates()
    return source, JointModel(small_model(source.special.vocab_size, decoder=True), generator.model, weight)


def joint_batches(generator: Generator, data: DataConfig, **sizes: int) -> JointBatches:
    source, model = joint_model(generator, data)
    loader = loader_of(source, data, **sizes)
    return JointBatches(loader, loader, model, World.alone(), "fp32")


@pytest.mark.parametrize("across_documents", [True, False])
def test_given_the_weights_the_batches_are_those_of_the_frozen_scorer(corpus, generator, across_documents):
    data, tokenizer = replace(data_of(corpus), across_documents=across_documents), small_tokenizer()
    found = FoundModel("g", "f", tokenizer.fingerprint, generator.special, LENGTH, lambda: generator.model)
    tools = Tools(tokenizer, MaskedLMScorer(found, "cpu", "float32", None))
    objective = equip(load_objective("model_based", "bart_ls", {"density": 0.1}), tools)
    frozen = MaskedCorpus.of_objective(Corpus(corpus), objective, SEED, segment_ids=not across_documents)
    expected = loader_of(frozen, data)
    joint = joint_batches(generator, data)
    for step in range(4):
        for batch, plain in zip(joint.step(step), expected.step(step), strict=True):
            assert batch.target_tokens == plain.target_tokens > 0
            inputs = {name: batch.inputs[name] for name in plain.inputs}
            torch.testing.assert_close(inputs, plain.inputs, rtol=0, atol=0)


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
    source, model = joint_model(generator, data)
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


def gradients_on_a_rank(world: World, mode: Any, corpus: str, generator: Generator):
    """Of one step, whole and by name, and what each of the rank's samples was."""
    data = data_of(corpus)
    source, model = joint_model(generator, data, weight=0.5)
    parallel = ParallelConfig(mode=mode)
    called = apply_parallel(model, parallel, world, "fp32")
    loader = loader_of(source, data, batch_size=3, micro=1, world_size=world.size, rank=world.rank)
    batches = JointBatches(loader, loader, model, world, "fp32").step(0)
    for number, batch in enumerate(batches):
        with reduction_context(called, parallel, last=number == len(batches) - 1):
            (called(**batch.inputs).minimised * world.size / batch.target_counts[0]).backward()
    # Some ranks hold nothing of a small parameter, but all have to gather it.
    shares = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    if mode == "fsdp" and world.size > 1:
        shares = {name: cast(DTensor, share).full_tensor() for name, share in shares.items()}
    return {name: gradient.detach().numpy() for name, gradient in shares.items()}, {
        int(batch.samples[0]): {name: None if x is None else x.numpy() for name, x in batch.inputs.items()}
        for batch in batches
        if batch.target_tokens
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
        torch.testing.assert_close(gradients, expected, rtol=1e-3, atol=1e-5)


def joint_recipe(folder: object, corpus: str, mode: Any = "ddp", **run: Any):
    recipe = toy_recipe(folder, **{"batch_size": 4, "micro_batch_size": 2, "steps": 6, **run})
    decoder = replace(recipe.model.decoder, positions=Learned(64))
    encoder = replace(recipe.model.encoder, positions=Learned(LENGTH))
    small = EncoderConfig(layers=1, positions=Learned(LENGTH), attention=Full())
    sizes = replace(recipe.model, decoder=None, encoder=small)
    data = data_of(corpus)
    data = replace(data, objective=replace(data.objective, seed=recipe.run.seed))
    return replace(
        recipe, model=replace(recipe.model, encoder=encoder, decoder=decoder), data=data,
        generator=GeneratorConfig(model=sizes, weight=2.0), parallel=ParallelConfig(mode=mode),
        checkpoint=replace(recipe.checkpoint, every=1000),
    )  # fmt: skip


def losses_of(recipe) -> list[tuple[float, float]]:
    records = [json.loads(line) for line in (Path(recipe.run.directory) / "metrics.jsonl").open()]
    assert [record["step"] for record in records] == list(range(1, recipe.run.steps + 1))
    return [(record["loss"], record["generator_loss"]) for record in records]


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    recipe = joint_recipe(tmp_path_factory.mktemp("straight"), corpus)
    assert train(recipe).finished
    return recipe


@pytest.fixture(scope="module")
def straight(finished):
    return losses_of(finished)


def test_the_work_of_both_is_counted(corpus, tmp_path):
    """The generator runs once to choose, and forward and backward to learn."""
    recipe = joint_recipe(tmp_path, corpus)
    unit = JointUnit.open(recipe)
    trainer, loader = make_trainer(recipe, unit=unit, model=unit.build_model()), unit.loader(0, 1)
    batches = unit.inputs_of(loader, loader, trainer.model, World.alone())
    made: Any = batches.step(0)
    asked = [(row.shape[0], int((row != IGNORED).sum())) for batch in made for row in batch.candidate_labels]
    sizes, table = recipe.generator.model, unit.generator.special.vocab_size
    expected = 4 * sum(forward_flops(sizes, table, *positions) for positions in asked)
    assert expected > 0
    update = trainer.update(batches)
    assert update.counts.flops == Counts.of(made, recipe.model, unit.special.vocab_size).flops + expected


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_run_trains_both(seed, tmp_path):
    """On a text of 4 different tokens, both learn which: from about ln V = 5.7 nats a token towards ln 4 = 1.4."""
    recipe = joint_recipe(tmp_path / "run", make_rows(tmp_path / "corpus", words=4), steps=25, seed=seed)
    recipe = replace(recipe, optimizer=replace(recipe.optimizer, learning_rate=0.03))
    assert train(recipe).finished
    (first, generated), *_, (last, generated_last) = losses_of(recipe)
    assert last < first - 3
    assert generated_last < generated - 3


def test_a_run_that_stopped_goes_on_with_both(straight, corpus, tmp_path):
    recipe = joint_recipe(tmp_path, corpus)
    assert train(recipe, until=3).step == 3
    assert train(recipe).finished
    assert losses_of(recipe) == straight


def finished_run(world: World, recipe) -> bool:
    return train(recipe, world=world).finished


@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_a_run_on_two_ranks_is_that_of_one(mode, straight, corpus, tmp_path):
    recipe = joint_recipe(tmp_path, corpus, mode)
    assert on_ranks(2, finished_run, recipe) == [True, True]
    np.testing.assert_allclose(losses_of(recipe), straight, rtol=1e-3)


def test_the_generator_of_a_run_is_a_scorer(finished, corpus):
    """And what another run may begin with."""
    run = finished.run.directory
    stored = load_tensors(next(Path(run).glob("checkpoints/*/model")))
    found = find_model(run)
    assert found.positions == LENGTH
    state = found.load().state_dict()
    assert state.keys() == {name.removeprefix("generator.") for name in stored if name.startswith("generator.")}
    torch.testing.assert_close(state, {name: stored[f"generator.{name}"] for name in state}, rtol=0, atol=0)
    generator = open_generator(GeneratorConfig(initial=run), Corpus(corpus), SEED)
    shown = open_rows(data_of(corpus), generator).candidates(np.arange(3))
    model = JointModel(small_model(40, decoder=True), generator.model.eval(), weight=1.0)
    with torch.no_grad():
        scores = model.score(*map(torch.tensor, (shown.source_ids, shown.source_mask, shown.labels)))
    losses = MaskedLMScorer(found, "cpu", "float32", None).losses(shown.source_ids, shown.source_lengths, shown.labels)
    assert losses.any()
    np.testing.assert_allclose(losses, scores.numpy(), rtol=1e-4, atol=1e-5)


def test_the_model_of_a_run_is_converted_without_its_generator(finished):
    model = read_model(Path(finished.run.directory))
    built = build_model(finished.model, model.vocabulary.size, 0)
    built.load_state_dict(model.state)


def test_a_corpus_in_a_store_is_the_same_run_with_a_local_copy(corpus, bucket, store, tmp_path, monkeypatch):
    """The manifest is read from the store, for the generator, and every row and the tokenizer from the copy."""
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    upload(corpus, f"{bucket}/corpus")
    here, there = (JointUnit.open(joint_recipe("unused", folder)) for folder in (corpus, f"{bucket}/corpus"))
    assert there.identity() == here.identity()
    store.requests.clear()
    rows = np.arange(5)
    for one, other in zip(here.mixtures, there.mixtures, strict=True):
        np.testing.assert_array_equal(other.examples(rows).source_ids, one.examples(rows).source_ids)
    first, second = (opened.loader(0, 1).step(0)[0].inputs for opened in (here, there))
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    assert not store.asked("GET", "shards/")
    keep_recipe({}, tokenizer_contents(f"{bucket}/corpus"), tmp_path / "run")
    assert read_tokenizer(tmp_path / "run").fingerprint == here.tokenizer_fingerprint


def test_a_run_records_what_each_of_the_two_sees(corpus, generator):
    """The objective puts <bos> and <eos> round a text; this generator knows neither."""
    names = {name: number for name, number in generator.special.ids.items() if name not in (BEGIN, END)}
    known = SpecialTokens(names, generator.special.vocab_size)
    generator = replace(generator, special=known)
    mixture = Mixture.of(open_rows(data_of(corpus), generator))
    unit = JointUnit(joint_recipe("unused", corpus), [mixture])
    unit.generator = generator
    found = unit.vocabulary()
    assert (found["frame"], found["special_tokens"]) == ([BEGIN, END], dict(mixture.special.ids))
    assert (found["generator"]["frame"], found["generator"]["special_tokens"]) == ([], dict(known.ids))
    assert found["generator"]["size"] == generator.model.tokens.num_embeddings


def test_held_out_data_has_masks_that_do_not_change(corpus, tmp_path):
    recipe = joint_recipe(tmp_path, corpus)
    unmasked = replace(recipe, evaluation=EvaluationConfig(corpus=corpus, every=2, sequences=4))
    with pytest.raises(FarspanError, match=r"evaluation.corpus has no masks.*give evaluation.masks"):
        train(unmasked)
    spans = SourceConfig(name="spans", corpus=corpus, objective=ObjectiveConfig(name="span", preset="bart_ls"))
    train(replace(recipe, evaluation=EvaluationConfig(mixture=(spans,), every=2, sequences=4)), until=2)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["held_out_loss"] > 0
