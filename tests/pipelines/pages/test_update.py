"""The rows of an update: those of the loader's batches, printed and on pages as the model saw them."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="farspan[view] is not installed")

from starlette.testclient import TestClient

from corpora.errors import FarspanError
from corpora.schemas.pairs import open_pairs
from objectives.api.examples import Examples
from pipelines.pages.filters import Filter, matches
from pipelines.pages.options import View
from pipelines.pages.page import PageOptions
from pipelines.pages.update import SeenRow, Update, find_update, read_update
from pipelines.view.app import build_app
from pipelines.view.command import open_artefacts
from pipelines.view.workspace import Workspace
from tests.artefacts import make_corpus
from tests.pipelines.pages.invented import make_run
from tests.trainer.toy import toy_recipe
from trainer.checkpoint.run_files import keep_recipe, tokenizer_contents
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig, TaskConfig
from trainer.data.loader import Loader
from trainer.model.positions import Learned
from trainer.recipe import Recipe
from trainer.run.sources import open_stages

SPAN = ObjectiveConfig(name="span", preset="t5")
TASK = TaskConfig(options={"separator": "<doc-sep>", "source_length": 2048, "target_length": 64, "targets": "sampled"})


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
    recipe = replace(toy, model=model, data=DataConfig(mixture=sources, source_length=2048, target_length=2048))
    keep_recipe(asdict(recipe), tokenizer_contents(sources[0].corpus), Path(recipe.run.directory))
    return recipe


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory) -> str:
    """A run on a stored mask set with two draws, on drawn masks, and on pairs; 40 updates are several epochs."""
    mixture = (
        SourceConfig(name="stored", corpus=made["corpus"], masks=made["spans"]),
        SourceConfig(name="drawn", corpus=made["corpus"], objective=SPAN),
        SourceConfig(name="tales", pairs=made["pairs"], task=TASK),
    )
    return make_run(str(tmp_path_factory.mktemp("runs") / "run"), mixture, made["corpus"])


def examples_of(update: Update, row: SeenRow) -> Examples:
    """The row as the mixture renders it."""
    index = sum(share.size for share in update.mixture.shares[: row.part]) + row.row
    return update.mixture.examples(np.array([index]), np.array([row.epoch]))


def view_update(folder: str, step: int, **options):
    (subject,) = open_artefacts(View(artefact=(folder,), step=step, **options))
    return subject


@pytest.mark.parametrize(("step", "processes"), [(1, 1), (5, 1), (50, 3)])
def test_the_rows_are_those_of_the_batches(recipe: Recipe, step: int, processes: int):
    loader = Loader(recipe.curriculum, open_stages(recipe.curriculum), recipe.run.seed)
    for rank in range(processes):
        batches = replace(loader, rank=rank, world_size=processes).step(step - 1)
        update = find_update(recipe, step, processes, rank)
        assert {row.rank for row in update.rows} == {rank}
        for number, batch in enumerate(batches):
            rows = [row for row in update.rows if row.micro_batch == number]
            if not rows:  # this process ran out of rows
                assert batch.target_tokens == 0
                continue
            assert [row.sample for row in rows] == batch.samples.tolist()
            for place, row in enumerate(rows):
                examples = examples_of(update, row)
                length = int(examples.source_lengths[0])
                assert np.array_equal(examples.sequence_ids[0], batch.sequence_ids[place])
                assert np.array_equal(examples.source_ids[0, :length], batch.source_ids[place, :length])
    everyone = find_update(recipe, step, processes).rows
    assert len({row.sample for row in everyone}) == len(everyone) == 7


def test_show_prints_places_and_rows(recipe: Recipe, run):
    folder = recipe.run.directory
    (Path(folder) / "starts.jsonl").write_text(json.dumps({"step": 0, "processes": 2}) + "\n")
    status, out, errors = run("show", folder, "--step", 3, "--width", 80)
    assert (status, errors) == (0, "")
    assert out.startswith(f"update 3 of {folder}\n")
    for number, row in enumerate(find_update(recipe, 3, 2).rows):
        assert f"  row {number}: rank {row.rank}, micro-batch {row.micro_batch}, sample {row.sample}, epoch" in out
    assert out.count("\nsource, ") == out.count("\ntarget, ") == 7
    assert "⟦hidden⟧" in out
    _, out, _ = run("show", folder, "--step", 3, "--rank", 1, "--row", 0, "--width", 80)
    assert out.count("\nsource, ") == 1
    assert "rank 0" not in out


@pytest.mark.parametrize("step", [1, 37])
def test_each_row_is_as_the_model_saw_it(made, folder, step):
    subject, update = view_update(folder, step), read_update(folder, step)
    assert len(subject) == len(update.rows) == 9
    assert {row.source for row in update.rows} == {"stored", "drawn", "tales"}
    for number, row in enumerate(update.rows):
        page, examples = subject.page(number, PageOptions()), examples_of(update, row)
        facts = dict(page.facts[:4])
        assert facts["source"] == row.source
        if row.source == "tales":  # rows of the split of the source, not of the pairs
            place = int(facts["row"].removesuffix(" of pairs"))
            (pair,) = open_pairs(made["pairs"]).take([place]).pair_ids
            assert f"(pair {pair})" in row.place
        else:
            assert facts["row"] == f"{row.row} of corpus"
        assert facts["process"] == f"rank {row.rank}, micro-batch {row.micro_batch}"
        source, target = next(column.seen for band in page.bands for column in band if column.seen)
        for block, ids, length in (
            (source, examples.source_ids, examples.source_lengths),
            (target, examples.target_ids, examples.target_lengths),
        ):
            whole = block.cut(0, 10_000).ids
            assert whole is not None
            np.testing.assert_array_equal(whole, ids[0, : int(length[0])])
    if step == 37:
        assert {row.epoch for row in update.rows} - {0}


def test_rows_of_one_process(folder):
    assert [dict(view_update(folder, 3, rank=1).page(0, PageOptions()).facts)["process"]] == ["rank 1, micro-batch 0"]
    assert len(view_update(folder, 3, rank=0)) + len(view_update(folder, 3, rank=1)) == 9


def test_pages_and_filters_over_http(folder):
    subject = view_update(folder, 5)
    client = TestClient(build_app(Workspace.of([subject]), "token", 0), base_url="http://127.0.0.1")
    assert subject.name == "run-step-5"
    page = client.get("/token/")
    assert page.status_code == 200
    assert "update 5, row 0 of 9" in page.text
    pairs = next(row for row in range(9) if dict(subject.page(row, PageOptions()).facts)["source"] == "tales")
    answer = client.get(f"/token/run-step-5/seek?start={pairs}&step=1&source=made&format=json").json()
    assert answer["address"].startswith(f"/token/run-step-5/{pairs}")
    for row in range(9):
        assert not matches(subject, row, row + 1, Filter(id="no such document")).any()
        assert matches(subject, row, row + 1, Filter(least=1)).all()
    assert subject.batch_of(4) == (4, 5)
    assert "".join(text for _, text in subject.texts(0))


def test_saved_rows_of_an_update(folder, tmp_path, run):
    path = tmp_path / "page.html"
    status, out, errors = run("view", folder, "--step", 2, "--save", path, "--rows", "0,4")
    assert (status, errors) == (0, "")
    assert out == f"{path}: 2 rows of {folder}\n"
    assert path.read_text().count("update 2, row") == 2


@pytest.mark.parametrize("command", ["show", "view"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--step", 41), "--step 41: the run has updates 1 to 40"),
        (("--step", 0), "--step 0: the run has updates 1 to 40"),
        (("--step", 1, "--rank", 2), "--rank 2: the run had processes 0 to 1"),
        (("--step", 1, "--row", 9), "run has rows 0 to 8"),
    ],
)
def test_what_the_run_never_had_is_refused(folder, command: str, flags: tuple, message: str, run):
    status, _, errors = run(command, folder, *flags)
    assert status == 1
    assert message in errors


def test_a_run_alone_has_no_rows_to_print(folder, run):
    assert "is a run; name the update to show: --step N" in run("show", folder)[2]


@pytest.mark.parametrize("command", ["show", "view"])
def test_an_artefact_has_no_steps(made, command: str, run):
    assert "is no run of `farspan train`; give one" in run(command, made["corpus"], "--step", 1)[2]
    assert "is no run; leave the flag out" in run(command, made["corpus"], "--rank", 1)[2]


def test_masks_of_joint_training_need_the_model():
    joint = SimpleNamespace(generator=SimpleNamespace())
    with pytest.raises(FarspanError, match="depend on the generator's weights at that update"):
        find_update(joint, 1)  # type: ignore[arg-type]


def test_the_pairs_of_a_packed_row_are_rows_of_their_own(made, tmp_path):
    mixture = (SourceConfig(name="tales", pairs=made["pairs"], task=TASK),)
    folder = make_run(str(tmp_path / "run"), mixture, made["corpus"], packing=True)
    update, subject = read_update(folder, 2), view_update(folder, 2)
    assert len(subject) == len(update.rows) > len({row.sample for row in update.rows}) == 9
    source: Any = update.mixture.parts[0].source
    for number, row in enumerate(update.rows):
        examples = source.pairs.examples(np.array([row.row]), np.array([row.epoch]))
        page = subject.page(number, PageOptions())
        block, _ = next(column.seen for band in page.bands for column in band if column.seen)
        whole = block.cut(0, 10_000).ids
        np.testing.assert_array_equal(whole, examples.source_ids[0, : int(examples.source_lengths[0])])
        assert row.place == f"tales: {source.pairs.origin(row.row)}"
