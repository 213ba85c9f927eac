"""Tests of runs on pairs, and on data in a store."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from pipelines.corpus.options import RandomCorpus
from pipelines.corpus.random import plan as plan_corpus
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan as plan_masks
from pipelines.masks.options import Masking
from tests.artefacts import make_corpus, make_documents, make_pairs
from tests.object_store import upload
from tests.trainer.distributed_ranks import on_ranks
from tests.trainer.run.test_startup import recipe_on
from tests.trainer.run.test_train_ranks import DDP, FSDP, losses, stopped_run
from tests.trainer.toy import metrics_of, toy_recipe, weights_of
from trainer.conversion.convert import read_model
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig, TaskConfig
from trainer.data.curriculum import StageConfig
from trainer.data.loader import LoadingConfig
from trainer.model.loss import LossConfig, R3FConfig
from trainer.model.patterns.bigbird import BigBird
from trainer.model.positions import Learned
from trainer.parallel.distributed import World
from trainer.run.sources import open_source, open_stages
from trainer.run.startup import check_packing
from trainer.run.step import Trainer
from trainer.run.train import train
from trainer.run_config import EvaluationConfig

TASK = TaskConfig(options={"separator": "<doc-sep>", "source_length": 64, "target_length": 12})

SAMPLED = replace(TASK, options={**TASK.options, "targets": "sampled", "query": "decoder", "query_length": 4})


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[str]:
    """Two artefacts of 24 and 12 pairs about two documents each, two thirds of them in train."""
    place = tmp_path_factory.mktemp("pairs")
    documents = make_documents(str(place / "documents"), shards=1, documents=20)
    return [
        make_pairs(str(place / f"{count}"), documents, count, seed=count, documents_per_pair=2) for count in (24, 12)
    ]


def mixture_of(folders: list[str]) -> tuple[SourceConfig, ...]:
    """3 : 1; targets of the second are sampled anew in every epoch."""
    return (
        SourceConfig(name="each", pairs=folders[0], task=TASK, weight=3.0),
        SourceConfig(name="sampled", pairs=folders[1], task=SAMPLED),
    )


def tuning(directory, parallel=DDP, data=None, evaluation=None, r3f=None, **run):
    data = {"source_length": 64, "target_length": 12, "source_multiple": 8, "target_multiple": 4, **(data or {})}
    recipe = toy_recipe(directory, checkpoint_every=1000, **{"dry_run": False, "micro_batch_size": 3, **run})
    encoder = replace(recipe.model.encoder, positions=Learned(64))
    return replace(
        recipe,
        model=replace(recipe.model, encoder=encoder),
        data=DataConfig(**data),
        evaluation=evaluation,
        loss=LossConfig(label_smoothing=0.1, label_smoothing_form="fairseq", r3f=r3f),
        parallel=parallel,
    )


def run(recipe, **options):
    """Outcome and what was printed."""
    said = StringIO()
    console = Console(file=said, width=1000)
    return train(recipe, console=console, **options), said.getvalue()


def test_a_run_is_the_same_when_stopped_by_a_signal_and_continued_at_another_world_size(tmp_path, folders):
    """A mixture of pairs with R3F, for epochs, with held-out loss; two ranks of FSDP, then one process."""
    data, evaluation = {"mixture": mixture_of(folders)}, EvaluationConfig(every=2, sequences=5)
    given = {"data": data, "evaluation": evaluation, "r3f": R3FConfig(eps=0.01, per="token")}
    length = {"batch_size": 6, "steps": None, "epochs": 0.9}
    straight = tuning(tmp_path / "straight", **given, **length)
    outcome, said = stopped_run(World.alone(), straight)
    assert "0.9 epochs of 32 sequences: 5 updates of 6" in said
    assert "loss.r3f passes every batch twice" in said
    assert outcome.finished
    broken = tuning(tmp_path / "broken", FSDP, **given, **length)
    for outcome, _ in on_ranks(2, stopped_run, broken, 3):
        assert (outcome.step, outcome.finished) == (3, False)
    outcome, said = stopped_run(World.alone(), broken)
    assert outcome.finished
    assert "continuing after step 3" in said
    assert losses(broken) == pytest.approx(losses(straight), rel=1e-9)
    assert len(losses(straight)) == 8
    assert {"held_out_loss/each", "held_out_loss/sampled"} <= metrics_of(straight)[-1].keys()
    torch.testing.assert_close(weights_of(broken), weights_of(straight), rtol=1e-9, atol=1e-9)


def test_a_pair_whose_loss_is_not_finite_is_skipped_and_named(tmp_path, folders, monkeypatch):
    """A folder of documents may be given; held-out pairs are those of the validation split."""
    passed = Trainer._pass

    def poisoned(self, model, batch, *rest):
        found = passed(self, model, batch, *rest)
        return found._replace(minimised=found.minimised * float("nan")) if self.step == 1 else found

    monkeypatch.setattr(Trainer, "_pass", poisoned)
    data = {"pairs": folders[0], "documents": str(tmp_path / "documents"), "task": TASK}
    assert make_documents(str(tmp_path / "documents"), shards=1, documents=20) == data["documents"]
    recipe = tuning(tmp_path / "run", data=data, evaluation=EvaluationConfig(), steps=5, batch_size=2)
    run(recipe, until=3)
    records = metrics_of(recipe)
    assert [record["loss"] is None for record in records] == [False, True, False]
    origins = [sample["origin"] for sample in records[1]["skipped"]]
    assert len(origins) == 2
    assert all("arrow row " in origin and "(pair pair-" in origin and ", target " in origin for origin in origins)


def test_cut_samples_are_told_at_the_start(tmp_path, folders):
    recipe = tuning(tmp_path / "run", data={"pairs": folders[0], "task": TASK}, steps=5, batch_size=2)
    _, said = run(recipe, until=1)
    (line,) = [line for line in said.splitlines() if line.startswith("warning: data: task text_to_text on split train")]
    assert "of 24 samples, " in line
    assert "are cut; data.task.options.source_length" in line
    tokenizer = json.loads((tmp_path / "run" / "tokenizer" / "tokenizer.json").read_text())
    assert tokenizer["model"]["vocab"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"task": TASK}, r"data: pairs is not set; name the folder of the pairs of its task: --set data.pairs=FOLDER"),
        ({"pairs": "PAIRS"}, r"data: task is not set; name one, or a preset of text_to_text"),
        ({"pairs": "PAIRS", "task": TASK, "split": "dev"}, r"data: .*no pair is in split 'dev'; its splits: train"),
        ({"pairs": "PAIRS", "task": TASK, "examples": 999}, r"data: .*examples is 999, but split 'train' has"),
        ({"corpus": "CORPUS", "examples": 9}, r"data: examples is 9, which draws pairs, but pairs is not set"),
        ({"corpus": "CORPUS", "task": TASK}, r"data: a task renders pairs, but .* is given as a corpus"),
        ({"pairs": "CORPUS", "task": TASK}, r"data: .*farspan.corpus"),
        ({"pairs": "PAIRS", "task": TaskConfig(preset="bart_lss")}, r"no preset 'bart_lss' \(did you mean 'bart_ls'"),
        ({"pairs": "PAIRS", "task": TASK, "across_documents": False}, r"across_documents is false, but tasks do not"),
        (
            {"pairs": "PAIRS", "task": TASK, "source_length": 48},
            r"data: task text_to_text on split train of .* may give .*\(pair pair-\d+, target \d\) a source of 64 "
            r"positions, data.source_length is 48; set data.source_length to 64 \(and the model's positions\), or "
            r"data.task.options.source_length to 48, which cuts it",
        ),
        (
            {"pairs": "PAIRS", "task": TASK, "target_length": 8},
            r"a target of 9 positions, data.target_length is 8; .* or data.task.options.target_length to 8",
        ),
    ],
)  # fmt: skip
def test_data_that_cannot_be_trained_on_is_refused_before_the_first_update(tmp_path, folders, data, said):
    corpus = make_corpus(str(tmp_path / "corpus"), documents=5)
    data = {key: {"PAIRS": folders[0], "CORPUS": corpus}.get(str(value), value) for key, value in data.items()}
    with pytest.raises(FarspanError, match=said):
        run(tuning(tmp_path / "run", data=data))
    assert not (tmp_path / "run").exists()


def test_a_target_longer_than_the_decoder_is_refused_with_the_recipe(tmp_path):
    with pytest.raises(FarspanError, match=r"data.target_length is 16, but model.decoder.positions.count is 12; raise"):
        tuning(tmp_path, data={"pairs": "p", "task": TASK, "target_length": 16})


def test_held_out_pairs_are_those_of_the_data_or_of_their_own_folder(folders):
    shown = {"pairs": folders[0], "task": TASK}
    own = tuning("r", data=shown, evaluation=EvaluationConfig()).held_out_data.sources
    assert [(source.pairs, source.split, source.task) for source in own] == [(folders[0], "validation", TASK)]
    other = tuning("r", data=shown, evaluation=EvaluationConfig(pairs=folders[1], split="train")).held_out_data.sources
    assert [(source.pairs, source.split, source.task) for source in other] == [(folders[1], "train", TASK)]
    mixed = tuning("r", data={"mixture": mixture_of(folders)}, evaluation=EvaluationConfig()).held_out_data.sources
    assert [(source.name, source.split) for source in mixed] == [("each", "validation"), ("sampled", "validation")]


def run_from(directory: Path, corpus: str, cache_gib: float | None, shuffle_shards: int = 1) -> str:
    """Train, and return what was said."""
    recipe = recipe_on(directory, corpus, corpus, "start")
    loading = LoadingConfig(cache_gib=cache_gib)
    recipe = replace(recipe, data=replace(recipe.data, shuffle_shards=shuffle_shards), loading=loading)
    outcome, said = run(recipe)
    assert outcome.finished
    return said


@pytest.mark.slow  # tests/trainer/data/test_remote_shards.py compares batches
def test_it_learns_what_a_local_run_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    corpus = make_corpus(str(tmp_path / "corpus"), documents=60, room_per_document=2, shards=4)
    upload(corpus, "memory://corpus")
    run_from(tmp_path / "here", corpus, None)
    said = run_from(tmp_path / "there", "memory://corpus", 0.01)
    assert "is read from a remote store step by step" in said
    here, there = (read_model(tmp_path / name).state for name in ("here", "there"))
    torch.testing.assert_close(there, here, rtol=0, atol=0)
    assert (tmp_path / "there" / "tokenizer" / "tokenizer.json").exists()
    assert os.listdir(tmp_path / "cache") == ["shards"]
    with pytest.raises(FarspanError, match=r"corpus.data.shuffle_shards: checkpoint 1, now None"):
        run_from(tmp_path / "here", corpus, None, shuffle_shards=0)


@pytest.mark.slow
def test_two_ranks_of_torchrun_share_one_cache_and_learn_what_they_learn_from_local_disk(tmp_path, bucket, store):
    """The store is a real server that both processes ask; each shard is fetched once for the two of them."""
    corpus = make_corpus(str(tmp_path / "corpus"), documents=60, room_per_document=2, shards=4)
    upload(corpus, f"{bucket}/corpus")
    store.requests.clear()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FARSPAN_CACHE": str(tmp_path / "cache"),
                   "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1",
                   "AWS_ENDPOINT_URL": store.url}  # fmt: skip
    found = {}
    for name, place in (("here", corpus), ("there", f"{bucket}/corpus")):
        recipe = tmp_path / f"{name}.toml"
        recipe.write_text(
            f'extends = "tiny"\n[run]\ndirectory = {json.dumps(str(tmp_path / name))}\ndevice = "cpu"\nsteps = 12\n'
            f"[data]\nsource_length = 512\ntarget_length = 256\nshuffle_shards = 1\ncorpus = {json.dumps(place)}\n"
            'objective = { name = "span" }\n[loading]\ncache_gib = 0.01\n'
        )
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "pipelines", "train", str(recipe)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        found[name] = [record["loss"] for record in map(json.loads, lines) if "loss" in record]
    assert len(found["here"]) == 12
    assert found["there"] == found["here"]
    assert os.listdir(tmp_path / "cache") == ["shards"]
    fetched = [name for name in os.listdir(tmp_path / "cache" / "shards") if not name.startswith(".")]
    assert 0 < len(fetched) == store.asked("GET", "/corpus/shards/")


@pytest.mark.parametrize("stored", [False, True])
def test_a_curriculum_takes_rows_of_its_lengths_from_one_corpus(tmp_path, stored):
    """Dataset decomposition, shortest rows first: each stage has all rows of its length, and no others."""
    documents, corpus, masks = (str(tmp_path / name) for name in ("documents", "corpus", "masks"))
    make_documents(documents)
    packing = Packing(sequence_length=64, packing="powers-of-two", min_document_tokens=10)
    run_job(plan_corpus(RandomCorpus(documents=documents, output=corpus, packing=packing)), Engine(workers=1))
    run_job(plan_masks(Masking(corpus=corpus, output=masks, objective="span")), Engine(workers=1))
    data = DataConfig(corpus=corpus, source_length=64, target_length=32)
    data = replace(data, masks=masks) if stored else replace(data, objective=ObjectiveConfig(name="span"))
    recipe = recipe_on(tmp_path / "run", corpus, corpus, "sizes")
    recipe = replace(recipe, evaluation=replace(recipe.evaluation, masks=masks))
    stages = tuple(
        StageConfig(steps=2, data=replace(data, row_positions=(size, size), source_length=size, source_multiple=size))
        for size in (16, 32, 64)
    )
    recipe = replace(recipe, data=data, stages=stages, run=replace(recipe.run, steps=6))
    train(recipe)
    assert metrics_of(recipe)[-1]["step"] == 6
    mixtures = open_stages(recipe.curriculum)
    whole = open_source(data)
    names = {name.tobytes() for name in whole.examples(np.arange(len(whole))).sequence_ids}
    assert sum(map(len, mixtures)) == len(whole) == len(names)
    for size, mixture in zip((16, 32, 64), mixtures, strict=True):
        source: Any = mixture.parts[0].source
        batch, _ = source.rows(np.arange(len(mixture)))
        assert set(batch.tokens.lengths.tolist()) == {size - 3}
        names -= set(batch.ids())
    assert not names
    with pytest.raises(FarspanError, match=r"row_positions is \[17, 20\], but no row .* its rows have 16 to 64"):
        open_source(replace(data, row_positions=(17, 20)))


def test_packed_pairs_give_the_same_run_on_any_number_of_ranks(tmp_path, folders):
    """With activation checkpointing, a dry run, and two ranks of DDP or FSDP; the held-out pairs are not packed."""
    task = replace(TASK, options={**TASK.options, "source_length": 20})
    given = {"evaluation": EvaluationConfig(every=3), "steps": 6, "batch_size": 4, "micro_batch_size": 1}

    def packed(name, packing=True, parallel=DDP):
        data = {"pairs": folders[0], "task": task, "packing": packing, "target_multiple": 1}
        more = {"activation_checkpointing": "layer", "dry_run": True}
        recipe = tuning(tmp_path / name, parallel, data=data, **given, **more)
        return replace(recipe, model=replace(recipe.model, encoder=replace(recipe.model.encoder, pooling=None)))

    straight = packed("straight")
    outcome, said = stopped_run(World.alone(), straight)
    assert outcome.finished
    line = next(line for line in said.splitlines() if "packed row" in line)
    found = re.match(r"data: (\d+) examples in (\d+) packed rows, at most (\d+)", line)
    examples, rows, most = map(int, found.groups())
    assert rows < examples <= rows * most
    for parallel in (DDP, FSDP):
        (outcome, _), _ = on_ranks(2, stopped_run, ranks := packed(parallel.mode, parallel=parallel))
        assert outcome.finished
        assert losses(ranks) == pytest.approx(losses(straight), rel=1e-9)
    with pytest.raises(FarspanError, match="corpus"):
        run(packed("straight", packing=False))


def test_what_cannot_be_packed_is_refused(tmp_path, folders):
    recipe = tuning(tmp_path, data={"pairs": folders[0], "task": TASK, "packing": True, "source_multiple": 4})
    for changes, said in (
        ({}, "packing is true, but model.encoder.pooling averages windows of the whole"),
        ({"pooling": None}, "blocks of 8 positions .*'block'; set data.source_multiple=8"),
        ({"pooling": None, "attention": BigBird()}, "'bigbird' depends on the length of the whole row"),
    ):
        model = replace(recipe.model, encoder=replace(recipe.model.encoder, **changes))
        with pytest.raises(FarspanError, match=said):
            check_packing(replace(recipe, model=model).curriculum)
    with pytest.raises(FarspanError, match=r"loss.r3f.per is 'sentence' and a row has several"):
        replace(recipe, loss=LossConfig(r3f=R3FConfig()))
    with pytest.raises(FarspanError, match=r"data: packing is true, but pairs is not set"):
        open_source(replace(recipe.data, pairs="", corpus="folder", task=None))
    with pytest.raises(FarspanError, match=r"source 'data' has no shards"):
        open_source(replace(recipe.data, shuffle_shards=1))
