"""Data sections opened: alone, in mixtures, in stages."""

import json
import os
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.storage import shard_cache
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.masks.job import plan
from pipelines.masks.options import Masking
from tests.artefacts import edit_sealed, make_corpus, make_documents, make_pairs
from tests.object_store import upload
from tests.trainer.masked_folders import SEED, SPAN, make_folders, stages_of
from tests.trainer.toy import toy_recipe, train_quietly
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig, TaskConfig
from trainer.data.curriculum import Stage
from trainer.data.loader import Loader, LoadingConfig, prefetch
from trainer.run.sources import open_source, open_stages


@pytest.fixture
def folders(tmp_path) -> tuple[str, str]:
    return make_folders(tmp_path)


def test_remote_artefacts_are_copied_and_give_the_same_batches(folders, bucket, store, tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    there = [f"{bucket}/{name}" for name in ("corpus", "masks")]
    for here, remote in zip(folders, there, strict=True):
        upload(here, remote)
    data = DataConfig(corpus=folders[0], masks=folders[1], source_length=128, target_length=64)
    opened = open_source(replace(data, corpus=there[0], masks=there[1]), cache=LoadingConfig().cache)
    assert opened.fingerprint == open_source(data).fingerprint
    rows = np.arange(9)
    np.testing.assert_array_equal(opened.examples(rows).target_ids, open_source(data).examples(rows).target_ids)
    store.requests.clear()
    open_source(replace(data, corpus=there[0], objective=SPAN, masks=None), cache=LoadingConfig().cache)
    assert store.asked("GET", "shards/") == 0


@pytest.mark.parametrize("gib", [None, 0.01])
def test_bytes_that_change_in_a_copy_reach_no_batch(folders, bucket, store, tmp_path, monkeypatch, gib):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    upload(folders[0], f"{bucket}/corpus")
    data = DataConfig(corpus=f"{bucket}/corpus", objective=SPAN, source_length=128, target_length=64)
    rows, loading = np.arange(9), LoadingConfig(cache_gib=gib)
    expected = open_source(data, cache=loading.cache).examples(rows).source_ids
    for copy in (tmp_path / "cache" / "shards").glob("[!.]*"):
        status, data_bytes = copy.stat(), bytearray(copy.read_bytes())
        for place in range(512, len(data_bytes) - 2048, 2):
            data_bytes[place] ^= 1
        copy.write_bytes(data_bytes)
        os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    monkeypatch.setattr(shard_cache, "_compared", set())  # as in a process that starts now
    store.requests.clear()
    np.testing.assert_array_equal(open_source(data, cache=loading.cache).examples(rows).source_ids, expected)
    assert store.asked("GET", "shards/") == 2


def test_remote_pairs_bring_their_documents(bucket, store, tmp_path, monkeypatch):
    monkeypatch.setenv("FARSPAN_CACHE", str(tmp_path / "cache"))
    make_pairs(str(tmp_path / "artefacts" / "pairs"), make_documents(str(tmp_path / "artefacts" / "documents")))
    upload(tmp_path / "artefacts", bucket)
    data = DataConfig(source_length=2048, target_length=64, task=TaskConfig(preset="bart_ls"))
    here, there = (
        open_source(replace(data, pairs=f"{place}/pairs"), cache=LoadingConfig().cache)
        for place in (tmp_path / "artefacts", bucket)
    )
    store.requests.clear()
    rows = np.arange(len(here))
    np.testing.assert_array_equal(there.examples(rows).source_ids, here.examples(rows).source_ids)
    assert store.requests == []


def test_masks_of_a_corpus_that_has_changed_are_refused(folders):
    corpus, masks = folders
    with edit_sealed(Path(corpus) / "manifest.json") as manifest:
        manifest["farspan_version"] = "another"
    said = f"its masks are not those of the corpus {corpus}, which has changed since; run `farspan mask` on"
    with pytest.raises(FarspanError, match=said):
        open_source(DataConfig(corpus=corpus, masks=masks, source_length=128, target_length=64))


def test_stored_masks_with_other_options_are_those_drawn_with_them(tmp_path, farspan_lead):
    corpus, masks = make_corpus(str(tmp_path / "corpus")), str(tmp_path / "masks")
    run_job(plan(Masking(corpus=corpus, output=masks, objective="lead_in", options={"lead": 6})), Engine(workers=1))
    data = DataConfig(corpus=corpus, source_length=256, target_length=256)
    stored = open_source(replace(data, masks=masks))
    adjusted = open_source(replace(data, masks=masks, masks_options={"lead": 2}))
    drawn = open_source(replace(data, objective=ObjectiveConfig(name="lead_in", options={"lead": 2})))
    rows = np.arange(len(stored))[::-3]
    np.testing.assert_equal(asdict(adjusted.examples(rows)), asdict(drawn.examples(rows)))
    assert adjusted.examples(rows).target_ids.shape[1] < stored.examples(rows).target_ids.shape[1]
    assert adjusted.fingerprint != stored.fingerprint
    with pytest.raises(FarspanError, match="option whole_words of objective lead_in cannot be changed on stored masks"):
        open_source(replace(data, masks=masks, masks_options={"whole_words": True}))


def test_an_objective_that_reads_text_gets_the_corpus_tokenizer(tmp_path, farspan_lead):
    corpus = make_corpus(str(tmp_path / "corpus"))
    words = ObjectiveConfig(name="lead_in", preset="words")
    data = DataConfig(corpus=corpus, source_length=256, target_length=256, objective=words)
    assert open_source(data).examples(np.arange(3)).target_lengths.min() > 0


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"corpus": "", "masks": "MASKS"}, "^data: corpus is not set"),
        ({}, "set one of them"),
        ({"masks": "MASKS", "target_length": 4}, r"its longest target has \d+ positions, data.target_length is 4"),
        ({"objective": replace(SPAN, options={"densty": 1})}, r"no option 'densty' \(did you mean 'density'"),
        ({"objective": replace(SPAN, scorer="model")}, r"objective\.scorer is 'model', but objective span uses"),
        ({"objective": SPAN, "masks_options": {"density": 0.1}}, r"give them as objective\.options"),
        ({"objective": replace(SPAN, scorer="model"), "masks": "MASKS"}, r"the masks in .* are already chosen"),
        (
            {"objective": ObjectiveConfig(name="principal_sentences"), "masks": "MASKS"},
            "holds masks of objective span, the recipe asks for principal",
        ),
        (
            {"objective": ObjectiveConfig(name="span", options={"density": 0.3}), "masks": "MASKS"},
            "with density 0.15, the recipe asks for 0.3; give",
        ),
        (
            {"objective": SPAN, "source_length": 32},
            r"sequence \w{32}: its source has \d+ positions, data.source_length is 32",
        ),
    ],
)
def test_wrong_sections_and_what_would_be_passed_over_are_refused(folders, section, message):
    section = {"corpus": folders[0], "source_length": 128, "target_length": 64, **section}
    if "masks" in section:
        section["masks"] = folders[1]
    with pytest.raises(FarspanError, match=message):
        open_source(DataConfig(**section))


def test_a_run_is_resumed_exactly_across_epochs(tmp_path):
    """Straight, and stopped within the second of four epochs."""
    corpus, _ = make_folders(tmp_path)
    losses = []
    for name in ("straight", "resumed"):
        data = DataConfig(corpus=corpus, source_length=128, target_length=64, objective=SPAN)
        recipe = toy_recipe(tmp_path / name, steps=7, seed=SEED, batch_size=5, micro_batch_size=5, positions=(128, 64))
        recipe = replace(recipe, data=data)
        if name == "resumed":
            train_quietly(recipe, until=3)
            with pytest.raises(FarspanError, match="fingerprint"):
                train_quietly(replace(recipe, data=replace(data, objective=replace(SPAN, redraw=False))))
        assert train_quietly(recipe).finished
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses.append([record["loss"] for record in map(json.loads, lines) if "loss" in record])
    assert len(losses[0]) == 7
    assert losses[0] == losses[1]


def test_masks_drawn_by_default_are_those_that_the_command_stores_by_default(artefacts):
    """Whatever the seed of the run."""
    corpus, masks = str(artefacts / "corpus"), str(artefacts / "defaults")
    run_job(plan(Masking(corpus=corpus, output=masks, objective="span")), Engine(workers=1))
    data = DataConfig(corpus=corpus, source_length=256, target_length=256)
    drawn = open_source(replace(data, objective=ObjectiveConfig(name="span")))
    stored = open_source(replace(data, masks=masks))
    rows = np.arange(len(drawn))
    np.testing.assert_equal(asdict(stored.examples(rows)), asdict(drawn.examples(rows)))


MIXED = (
    SourceConfig(name="spans", corpus="", objective=replace(SPAN, seed=0), weight=2.0),
    SourceConfig(name="sentences", corpus="", objective=ObjectiveConfig(name="principal_sentences", preset="pegasus")),
)


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory) -> Path:
    """A corpus, and a mask set of it for each objective of ``MIXED``."""
    folder = tmp_path_factory.mktemp("artefacts")
    corpus = make_corpus(str(folder / "corpus"))
    for source in MIXED:
        asked, output = source.objective, str(folder / source.name)
        chosen: dict[str, Any] = {"objective": asked.name, "preset": asked.preset, "options": asked.options}
        run_job(plan(Masking(corpus=corpus, output=output, draws=2, **chosen)), Engine(workers=1))
    return folder


def mixed(folder: Path, stored: tuple[str, ...] = ()) -> DataConfig:
    sources = [
        replace(source, corpus=str(folder / "corpus"), masks=str(folder / source.name), objective=None)
        if source.name in stored
        else replace(source, corpus=str(folder / "corpus"))
        for source in MIXED
    ]
    return DataConfig(mixture=tuple(sources), source_length=256, target_length=256)


def test_a_mixture_is_the_same_with_masks_read_and_drawn(artefacts):
    loaders = []
    for stored in ((), ("spans",), ("spans", "sentences")):
        stages = stages_of(mixed(artefacts, stored))
        loaders.append(Loader(stages, open_stages(stages), SEED))
    for step in range(3):
        drawn, *stored_batches = ([batch.inputs for batch in loader.step(step)] for loader in loaders)
        for batches in stored_batches:
            torch.testing.assert_close(batches, drawn, rtol=0, atol=0)
    mixture = loaders[0].mixtures[0]
    origins = mixture.origins(mixture.sequences(np.arange(4), SEED).indices)
    assert {origin.split(": ")[0] for origin in origins} == {"spans", "sentences"}
    assert origins[0].endswith(tuple(f"row {row}" for row in range(40)))
    table = loaders[0].mixtures[0].special.ids
    assert {"<sentinel-0>", "<sent-mask>"} <= table.keys()
    assert len(set(table.values())) == len(table)


def test_parts_of_a_mixture_render_their_own_with_the_ids_of_all(artefacts):
    mixture = open_source(mixed(artefacts))
    rows = np.arange(5)
    for part, config in zip(mixture.parts, MIXED, strict=True):
        corpus = str(artefacts / "corpus")
        data = DataConfig(corpus=corpus, objective=config.objective, source_length=256, target_length=256)
        alone = open_source(data)
        names = np.full(mixture.special.vocab_size, -1)
        names[list(mixture.special.ids.values())] = [alone.special.ids.get(name, -2) for name in mixture.special.ids]
        names[: alone.tokenizer_size] = np.arange(alone.tokenizer_size)
        assert np.array_equal(names[part.source.examples(rows).source_ids], alone.examples(rows).source_ids)
        assert np.array_equal(names[part.source.examples(rows).target_ids], alone.examples(rows).target_ids)


def test_stages_with_the_same_data_share_it_and_all_share_a_table(artefacts):
    one, other = mixed(artefacts), replace(mixed(artefacts), mixture=mixed(artefacts).mixture[1:])
    opened = open_stages(stages_of(one, other, one))
    assert opened[0] is opened[2]
    assert opened[0].special == opened[1].special
    alone = open_source(other)
    assert alone.special != opened[1].special
    assert alone.with_special(opened[1].special).fingerprint == opened[1].fingerprint
    with pytest.raises(FarspanError, match=r"needs special tokens <sent-mask>, which the model does not know"):
        spans = replace(one, mixture=one.mixture[:1])
        alone.with_special(open_source(spans).special)


@pytest.mark.parametrize("name", ["corpus", "spans"])
def test_damage_is_found_before_it_is_used(artefacts, tmp_path, name):
    folder = shutil.copytree(artefacts, tmp_path / "copy")
    data = mixed(folder, ("spans",))
    open_source(data, verify=True)
    shard = sorted((folder / name / "shards").iterdir())[0]
    sound = shard.read_bytes()

    def write(changed: bytes) -> None:
        shard.unlink()  # what is mapped stays
        shard.write_bytes(changed)

    middle = len(sound) // 2
    write(sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :])
    with pytest.raises(FarspanError, match=rf"{shard}: .*sha256"):
        open_source(data, verify=True)
    write(sound[:-1])
    with pytest.raises(FarspanError, match=rf"source 'spans' of data.mixture: {shard}: .* bytes where the manifest"):
        open_source(data)
    shard.unlink()
    with pytest.raises(FarspanError, match=rf"{shard}: .*No such file"):
        open_source(data)


@pytest.mark.parametrize("agreed", [SPAN, ObjectiveConfig(name="span")])
def test_a_recipe_may_name_the_objective_of_its_masks(folders, agreed):
    data = DataConfig(corpus=folders[0], masks=folders[1], source_length=128, target_length=64)
    assert open_source(replace(data, objective=agreed)).fingerprint == open_source(data).fingerprint


def test_processes_open_the_corpora_anew_and_make_the_same_batches(artefacts):
    stages = stages_of(mixed(artefacts, ("spans",)))
    here = open_mixed(stages)
    with prefetch(here, LoadingConfig(processes=1), 10, reopen=partial(open_mixed, stages)) as batches:
        for step in (0, 1):
            there, expected = ([batch.inputs for batch in loader.step(step)] for loader in (batches, here))
            torch.testing.assert_close(there, expected, rtol=0, atol=0)


def open_mixed(stages: list[Stage]) -> Loader:
    return Loader(stages, open_stages(stages, verify=True), SEED)
