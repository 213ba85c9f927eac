"""Generation for held-out pairs while a model is trained: the numbers of ``farspan generate`` and the metric."""

import os
import signal
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.schemas.pairs import open_pairs
from corpora.schemas.predictions import open_predictions
from objectives.metrics.metrics import load_metric
from pipelines.generate import generate
from pipelines.options import Generating
from tests.fine_tuned import make_artefacts, paired_recipe, train_quietly
from tests.object_store import upload
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.toy import make_trainer, metrics_of
from trainer.checkpoint.run_files import VALIDATION, read_sealed
from trainer.checkpoint.selection import find_checkpoint
from trainer.data.config import SourceConfig
from trainer.parallel.distributed import World
from trainer.parallel.wrapping import ParallelConfig
from trainer.prediction.setup import open_validation
from trainer.prediction.validation import Validation
from trainer.run.units import open_unit
from trainer.run_config import EvaluationConfig, ValidationConfig


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return make_artefacts(tmp_path_factory.mktemp("validation"), 80, splits=("train", "validation"))


def validated_recipe(directory, pairs, best="f1", run=None, **section):
    recipe = paired_recipe(directory, pairs, checkpoint_every=100, **(run or {}))
    section = {"metrics": "f1", "beams": 2, "max_tokens": 10, "every": 4, **section}
    evaluation = EvaluationConfig(every=3, generation=ValidationConfig(**section))
    return replace(recipe, evaluation=evaluation, checkpoint=replace(recipe.checkpoint, best=best, keep=9))


def measured(recipe, key):
    return [(record["step"], record[key]) for record in metrics_of(recipe) if key in record]


def test_what_the_metric_lacks_is_said_before_the_first_update(pairs, tmp_path):
    recipe = validated_recipe(tmp_path / "run", pairs, "nearest_exact_match", metrics="quality_nearest")
    with pytest.raises(FarspanError, match="pair 'pair-1' has no options to choose from, which metric quality_nearest"):
        train_quietly(recipe)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "key"), [("f1", "f1"), pytest.param("rouge:scrolls", "rouge/geometric_mean", marks=pytest.mark.slow)]
)
def test_the_logged_metric_is_that_of_farspan_generate(pairs, tmp_path, name, key):
    recipe = validated_recipe(tmp_path / "run", pairs, key, limit=20, metrics=name)
    said = train_quietly(recipe)
    found = dict(measured(recipe, key))
    assert list(found) == [4, 6]
    assert [step for step, _ in measured(recipe, "held_out_loss")] == [3, 6]
    best = max(found, key=found.__getitem__)
    assert f"{key} {found[best]:.4f}  best so far" in said
    assert find_checkpoint(tmp_path / "run", "best").name == f"step-{best:08d}"
    known = open_pairs(pairs)
    output = str(tmp_path / "predictions")
    generate(Generating(model=str(tmp_path / "run"), pairs=pairs, output=output, device="cpu"), World.alone())
    table = known.table(known.rows_of("validation")[:20])
    texts = open_predictions(output).texts[:20]
    metric = load_metric(name)
    scores = metric.aggregate(metric.scores(texts, table.column("references").to_pylist()))
    last = metrics_of(recipe)[-1]
    assert {key: last[key] for key in scores} == scores
    lengths = [len(row) for batch in open_predictions(output).batches() for row in batch.column("tokens").to_pylist()]
    assert last["generated_tokens"] == pytest.approx(sum(lengths[:20]) / 20)


def test_validation_changes_no_training(pairs, tmp_path):
    run: dict[str, Any] = {"dropout": 0.1}
    validated = validated_recipe(tmp_path / "validated", pairs, run=run, every=3, limit=2)
    plain = paired_recipe(tmp_path / "plain", pairs, **run)
    for recipe in (validated, plain):
        train_quietly(recipe)
    assert [loss for _, loss in measured(validated, "loss")] == [loss for _, loss in measured(plain, "loss")]


def opened(recipe, unit):
    """The validation that a recipe asks for."""
    generation, data = recipe.evaluation.generation, recipe.held_out_data
    return open_validation(generation, data, recipe.model, recipe.loading, unit.mixtures[0])


def test_pairs_in_a_store_are_generated_for_from_a_local_copy(pairs, bucket, store, tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    artefacts = Path(pairs).parent
    for name in ("pairs", "documents"):
        upload(artefacts / name, f"{bucket}/{name}")
    recipe = validated_recipe(tmp_path / "run", pairs, limit=3)
    unit = open_unit(recipe)
    remote = replace(recipe, data=replace(recipe.data, pairs=f"{bucket}/pairs"))
    here, there = (opened(one, unit) for one in (recipe, remote))
    store.requests.clear()
    for one, other in zip(here.parts, there.parts, strict=True):
        assert other.pairs.take(other.rows).targets.values.tolist() == one.pairs.take(one.rows).targets.values.tolist()
    assert store.requests == []


def dying(recipe):
    torch.set_num_threads(1)
    measure = Validation._score

    def scored(self, model, part, rows):
        steps.append(1)
        if len(steps) == 2:  # the second chunk of a validation
            os.kill(os.getpid(), signal.SIGKILL)
        return measure(self, model, part, rows)

    steps: list[int] = []
    Validation._score = scored
    train_quietly(recipe)


@pytest.mark.slow
def test_a_run_killed_while_it_generates_measures_the_same(pairs, tmp_path):
    straight, killed = (validated_recipe(tmp_path / name, pairs, every=3, limit=40) for name in ("straight", "killed"))
    train_quietly(straight)
    process = get_context("fork").Process(target=dying, args=(killed,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    train_quietly(killed)
    for key in ("f1", "generated_tokens", "held_out_loss"):
        assert measured(killed, key) == measured(straight, key)
    texts = [read_sealed(tmp_path / name / VALIDATION) for name in ("straight", "killed")]
    assert texts[0] == texts[1]
    assert len(texts[0]["texts"]) == 8
    assert find_checkpoint(tmp_path / "killed", "best").name == find_checkpoint(tmp_path / "straight", "best").name


def validation_of(recipe, world):
    torch.set_num_threads(1)
    unit = open_unit(recipe)
    trainer = make_trainer(recipe, world, unit=unit, model=unit.build_model())
    validation = opened(recipe, unit)
    with trainer.generating() as model:
        return validation(model, world)


def on_rank(world, recipe):
    return validation_of(recipe, world)


@pytest.mark.parametrize("mode", ["fsdp", pytest.param("ddp", marks=pytest.mark.slow)])
def test_any_number_of_ranks_measures_the_same(pairs, tmp_path, mode):
    recipe = replace(validated_recipe(tmp_path, pairs, limit=256), parallel=ParallelConfig(mode=mode))
    (alone,) = on_ranks(1, on_rank, recipe)
    assert on_ranks(3, on_rank, recipe) == [alone] * 3
    assert alone["generated_tokens"] > 1


def test_bfloat16_generates(pairs, tmp_path):
    recipe = validated_recipe(tmp_path, pairs, run={"precision": "bf16"}, limit=8)
    assert validation_of(recipe, World.alone())["generated_tokens"] > 0


def test_each_source_of_a_mixture_is_measured(pairs, tmp_path):
    recipe = validated_recipe(tmp_path, pairs, limit=4)
    task = recipe.data.task
    sources = tuple(SourceConfig(name=name, pairs=pairs, split=name, task=task) for name in ("train", "validation"))
    recipe = replace(recipe, evaluation=replace(recipe.evaluation, mixture=sources))
    unit = open_unit(recipe)
    found = opened(recipe, unit)
    record = found(unit.build_model(), World.alone())
    assert sorted(record) == sorted(found.names)
    means = [record[f"f1/{name}"] for name in ("train", "validation")]
    assert record["f1"] == pytest.approx(sum(means) / 2, abs=1e-4)
    for name, mean in zip(("train", "validation"), means, strict=True):
        kept = [text for text in found.texts if text["source"] == name]
        assert len(kept) == 4
        assert np.mean([text["scores"]["f1"] for text in kept]) == pytest.approx(mean)
        assert all(text["references"] for text in kept)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"metrics": "scrolls:quaspar"}, r"no metric is called 'scrolls:quaspar' \(did you mean"),
        ({"max_tokens": 32}, r"evaluation.generation.max_tokens is 32, but the decoder has 32 positions"),
        ({"limit": 0}, r"evaluation.generation.limit is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_validated_is_refused_at_the_start(pairs, tmp_path, section, message):
    with pytest.raises(FarspanError, match=message):
        train_quietly(validated_recipe(tmp_path, pairs, **section))


def test_a_best_metric_of_another_validation_is_refused(pairs, tmp_path):
    with pytest.raises(
        FarspanError, match=r"'exact_match'; evaluations measure held_out_loss, held_out_perplexity, f1"
    ):
        train_quietly(validated_recipe(tmp_path, pairs, best="exact_match"))
    assert not Path(tmp_path, "checkpoints").exists()
