"""farspan show RUN --step N: the rows are those of the loader's batches, on any number of processes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from corpora.errors import FarspanError
from pipelines.pages.update import update_rows
from tests.artefacts import make_corpus
from tests.trainer.toy import toy_recipe
from trainer.checkpoint.run_files import keep_recipe, tokenizer_contents
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.loader import Loader
from trainer.model.positions import Learned
from trainer.recipe import Recipe
from trainer.run.sources import open_stages

SPAN = ObjectiveConfig(name="span", preset="t5")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory) -> Recipe:
    """A mixture of two corpora, seven rows a step in micro-batches of two."""
    folder = tmp_path_factory.mktemp("run")
    sources = tuple(
        SourceConfig(name=name, corpus=make_corpus(str(folder / name), seed=seed), objective=SPAN, weight=weight)
        for seed, (name, weight) in enumerate([("a", 1.0), ("b", 2.0)])
    )
    toy = toy_recipe(folder / "run", steps=50, batch_size=7, micro_batch_size=2)
    model = replace(
        toy.model,
        encoder=replace(toy.model.encoder, positions=Learned(2048)),
        decoder=replace(toy.model.decoder, positions=Learned(2048)),
    )
    data = DataConfig(mixture=sources, source_length=2048, target_length=2048)
    made = replace(toy, model=model, data=data)
    tokenizer = tokenizer_contents(sources[0].corpus)
    keep_recipe(asdict(made), tokenizer, Path(made.run.directory))
    return made


@pytest.mark.parametrize(("step", "processes"), [(1, 1), (5, 1), (50, 3)])
def test_the_rows_are_those_of_the_batches(recipe: Recipe, step: int, processes: int):
    loader = Loader(recipe.curriculum, open_stages(recipe.curriculum), recipe.run.seed)
    for rank in range(processes):
        batches = replace(loader, rank=rank, world_size=processes).step(step - 1)
        update = update_rows(recipe, step, processes, rank)
        assert {seen.rank for seen in update.rows} == {rank}
        for number, batch in enumerate(batches):
            own = [seen for seen in update.rows if seen.micro_batch == number]
            if not own:  # this process ran out of rows
                assert batch.target_tokens == 0
                continue
            assert [seen.sample for seen in own] == batch.samples.tolist()
            for place, seen in enumerate(own):
                examples = update.examples(seen)
                length = int(examples.source_lengths[0])
                assert np.array_equal(examples.sequence_ids[0], batch.sequence_ids[place])
                assert np.array_equal(examples.source_ids[0, :length], batch.source_ids[place, :length])
    everyone = update_rows(recipe, step, processes).rows
    assert len({seen.sample for seen in everyone}) == len(everyone) == 7


def test_what_is_printed(recipe: Recipe, run):
    folder = recipe.run.directory
    (Path(folder) / "starts.jsonl").write_text(json.dumps({"step": 0, "processes": 2}) + "\n")
    status, out, errors = run("show", folder, "--step", 3, "--width", 80)
    assert (status, errors) == (0, "")
    seen = update_rows(recipe, 3, 2).rows
    assert out.startswith(f"update 3 of {folder}\n")
    for number, row in enumerate(seen):
        assert f"  row {number}: rank {row.rank}, micro-batch {row.micro_batch}, sample {row.sample}, epoch" in out
    assert out.count("\nsource, ") == out.count("\ntarget, ") == 7
    assert "⟦hidden⟧" in out
    _, out, _ = run("show", folder, "--step", 3, "--rank", 1, "--row", 0, "--width", 80)
    assert out.count("\nsource, ") == 1
    assert "rank 0" not in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "is a run; name the update to show: --step N"),
        (("--step", 51), "--step 51: the run has updates 1 to 50"),
        (("--step", 0), "--step 0: the run has updates 1 to 50"),
        (("--step", 1, "--rank", 9), "--rank 9: the run had processes 0 to"),
        (("--step", 1, "--row", 7), "has rows 0 to 6"),
    ],
)
def test_what_the_run_never_had(recipe: Recipe, flags: tuple, message: str, run):
    status, _, errors = run("show", recipe.run.directory, *flags)
    assert status == 1
    assert message in errors


def test_an_artefact_has_no_steps(recipe: Recipe, run):
    (first, _) = recipe.data.mixture
    assert "is no run of `farspan train`" in run("show", first.corpus, "--step", 1)[2]
    assert "is no run; leave the flag out" in run("show", first.corpus, "--rank", 1)[2]


def test_masks_of_joint_training_need_the_model(recipe: Recipe):
    from types import SimpleNamespace

    joint = SimpleNamespace(generator=SimpleNamespace(mode="joint"))
    with pytest.raises(FarspanError, match="depend on the generator's weights at that update"):
        update_rows(joint, 1)  # type: ignore[arg-type]
