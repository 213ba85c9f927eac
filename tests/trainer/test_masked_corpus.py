"""A corpus and a mask set on disk, read and drawn."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from corpora.corpus import Corpus
from corpora.errors import FarspanError
from corpora.files import LocalFiles
from corpora.manifest import Manifest, manifest_sha256, write_manifest
from corpora.sequences import corpus_schema
from corpora.shards import shard_name, write_shard
from objectives.base import CorpusFacts, load_objective, mask_key
from objectives.mask_set import MaskSet
from objectives.masks import MASK_SCHEMA
from pipelines.engine import Engine
from pipelines.job import run_job
from pipelines.mask import Masking, plan
from tests.artefacts import make_corpus
from tests.factories import OWNED, VOCAB, make_sequences
from tests.trainer.toy import toy_recipe
from trainer.data import DataConfig, ObjectiveConfig, SourceConfig
from trainer.loader import Loader
from trainer.masked_corpus import MaskedCorpus, open_source, open_stages
from trainer.model.build import build_model
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned
from trainer.prefetch import LoadingConfig, prefetched
from trainer.recipe import EvaluationConfig
from trainer.run import train
from trainer.stages import Stage

FILES = LocalFiles()
OPTIONS = {"density": 0.15}
SEED = 3
SPAN = ObjectiveConfig(name="span", options=OPTIONS)


def write_artefact(folder: Path, manifest: Manifest, schema, batches) -> None:
    shards = []
    for number, batch in enumerate(batches):
        path = folder / "shards" / shard_name(number, len(batches))
        with write_shard(FILES, str(path), schema, manifest.rows_per_batch) as (writer, info):
            writer.write(batch)
        shards += info
    write_manifest(FILES, str(folder), replace(manifest, shards=tuple(shards)))


@pytest.fixture
def folders(tmp_path) -> tuple[str, str]:
    """A corpus of two shards with 5 and 4 rows, and span masks of it."""
    blocks = [make_sequences([40, 60, 33, 80, 50][: 5 - n], 3, seed=n) for n in range(2)]
    facts = {"max_tokens": 80, "max_documents": 3}
    config = {"sequence_length": 96, "room_per_sequence": 2, "room_per_document": 1}
    corpus, masks = tmp_path / "corpus", tmp_path / "masks"
    manifest = Manifest(
        "farspan.corpus", config, 0, 2,
        {"fingerprint": "f", "vocab_size": VOCAB, "owned_tokens": OWNED}, totals=facts,
    )  # fmt: skip
    schema = corpus_schema(VOCAB)
    write_artefact(corpus, manifest, schema, [block.to_arrow(schema) for block in blocks])
    objective = load_objective("span", options=OPTIONS)
    special = objective.validate(CorpusFacts.of(Corpus(str(corpus)).manifest))
    drawn = [objective.mask(block, mask_key(SEED, objective)) for block in blocks]
    mask_manifest = replace(
        manifest,
        format="farspan.masks",
        config={"objective": "span", "options": dict(objective.options)},
        seed=SEED,
        special_tokens=special.ids,
        parent={"path": "../corpus", "manifest_sha256": manifest_sha256(FILES, str(corpus))},
        totals={
            "max_source_length": int(max(part.source_lengths.max() for part in drawn)),
            "max_target_length": int(max(part.target_lengths.max() for part in drawn)),
        },
    )
    write_artefact(masks, mask_manifest, MASK_SCHEMA, [part.to_arrow() for part in drawn])
    return str(corpus), str(masks)


def test_drawn_masks_are_the_stored_ones(folders):
    corpus, masks = Corpus(folders[0]), MaskSet(folders[1])
    stored = MaskedCorpus.stored(corpus, masks)
    objective = load_objective("span", options=OPTIONS)
    drawn = MaskedCorpus.drawn(corpus, objective, SEED)
    assert len(stored) == len(drawn) == 9
    assert stored.special == drawn.special
    indices = np.array([8, 0, 5, 4, 0])
    one, other = stored.examples(indices), drawn.examples(indices)
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
    assert [row.tobytes() for row in one.sequence_ids] == [
        corpus.take(np.array([index])).sequence_id(0) for index in indices
    ]
    another = MaskedCorpus.drawn(corpus, objective, SEED + 1)
    assert not np.array_equal(another.examples(indices).source_ids, one.source_ids)
    assert len({stored.fingerprint, drawn.fingerprint, another.fingerprint}) == 3


def test_another_corpus_table_tool_option_or_objective_is_another_fingerprint(tmp_path):
    one, other = (Corpus(make_corpus(str(tmp_path / f"{seed}"), seed=seed)) for seed in (0, 1))
    spans, asking = (load_objective("span", options=OPTIONS) for _ in range(2))
    object.__setattr__(asking, "tools", {"scorer": "of some other day"})  # as of an objective that asks a model
    drawn = MaskedCorpus.drawn(one, spans, SEED)
    longer = replace(drawn.special, ids={**drawn.special.ids, "<more>": drawn.special.vocab_size})
    found = [
        drawn,
        drawn.with_special(longer),
        MaskedCorpus.drawn(one, asking, SEED),
        MaskedCorpus.drawn(one, load_objective("span", options={"density": 0.2}), SEED),
        MaskedCorpus.drawn(one, load_objective("principal_sentences", "pegasus"), SEED),
        MaskedCorpus.drawn(other, spans, SEED).with_special(drawn.special),
    ]
    assert len({source.fingerprint for source in found}) == len(found)
    assert MaskedCorpus.drawn(Corpus(one.folder), spans, SEED).fingerprint == drawn.fingerprint


def test_documents_are_numbered_only_where_they_are_kept_apart(folders):
    data = DataConfig(corpus=folders[0], source_length=128, target_length=64)
    rows = np.arange(9)
    for chosen in (replace(data, masks=folders[1]), replace(data, objective=SPAN)):
        across, apart = (open_source(replace(chosen, across_documents=value), SEED) for value in (True, False))
        examples = apart.examples(rows)
        np.testing.assert_array_equal(examples.source_ids, across.examples(rows).source_ids)
        assert across.examples(rows).segment_ids is None
        documents = Corpus(folders[0]).take(rows).document_starts.lengths
        assert (examples.segment_ids.max(1) == documents - 1).all()
        assert np.array_equal(examples.segment_ids == -1, ~examples.source_mask)
        assert across.fingerprint != apart.fingerprint


def test_an_objective_that_numbers_no_documents_is_refused_before_training(tmp_path, farspan_lead):
    data = DataConfig(
        corpus=make_corpus(str(tmp_path / "corpus")), objective=ObjectiveConfig(name="lead_in"), source_length=256
    )
    open_source(data, SEED)
    with pytest.raises(FarspanError, match=r"data.across_documents is false, but objective lead_in"):
        open_source(replace(data, across_documents=False), SEED)


def test_a_window_trains_with_the_tasks_global_positions_and_documents_apart(folders, tmp_path):
    recipe = toy_recipe(tmp_path / "run", steps=5, dropout=0.0)
    encoder = replace(recipe.model.encoder, positions=Learned(128), attention=Window(8), pooling=None)
    decoder = replace(recipe.model.decoder, positions=Learned(64))
    options = {**OPTIONS, "global_attention": "bos"}
    data = DataConfig(
        corpus=folders[0], objective=ObjectiveConfig(name="span", options=options), source_length=128,
        target_length=64, across_documents=False,
    )  # fmt: skip
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder, decoder=decoder), data=data)
    source = open_source(data, SEED)
    stages = [replace(stage, micro_batch_size=4) for stage in stages_of(data)]
    (batch,) = Loader(stages, [source], SEED).step(0)
    assert batch.global_positions.sum(1).tolist() == [1] * 4
    model = build_model(recipe.model, source.special.vocab_size, SEED)
    model(**batch.inputs).minimised.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    changed = batch.source_ids.masked_fill(batch.segment_ids == 1, 5)
    one, other = (
        model.encode(ids, batch.source_real, batch.segment_ids, batch.global_positions).states
        for ids in (batch.source_ids, changed)
    )
    elsewhere = batch.source_real & (batch.segment_ids != 1)
    torch.testing.assert_close(one[elsewhere], other[elsewhere], atol=1e-6, rtol=0)
    assert not torch.allclose(one[batch.segment_ids == 1], other[batch.segment_ids == 1])
    assert train(recipe, console=Console(file=StringIO())).finished


def test_fingerprint_stays_when_the_data_moves(folders, tmp_path):
    before = MaskedCorpus.stored(Corpus(folders[0]), MaskSet(folders[1])).fingerprint
    (tmp_path / "elsewhere").mkdir()
    moved = [Path(folder).rename(tmp_path / "elsewhere" / Path(folder).name) for folder in folders]
    assert MaskedCorpus.stored(Corpus(str(moved[0])), MaskSet(str(moved[1]))).fingerprint == before


def test_sections_open_what_they_name(folders):
    data = DataConfig(corpus=folders[0], source_length=128, target_length=64)
    read = open_source(replace(data, masks=folders[1]), SEED)
    drawn = open_source(replace(data, objective=SPAN), SEED)
    rows = np.arange(9)
    np.testing.assert_array_equal(read.examples(rows).target_ids, drawn.examples(rows).target_ids)


def test_wrong_sections_are_refused(folders):
    corpus, masks = folders
    data = DataConfig(corpus=corpus, masks=masks, source_length=128, target_length=64)
    with pytest.raises(FarspanError, match=r"^data: corpus is not set"):
        open_source(replace(data, corpus=""), 0)
    with pytest.raises(FarspanError, match=r"set one of them"):
        open_source(replace(data, masks=None), 0)
    with pytest.raises(FarspanError, match=r"its longest target has \d+ positions, data.target_length is 4"):
        open_source(replace(data, target_length=4), 0)
    with pytest.raises(FarspanError, match=r"has no option 'densty' \(did you mean 'density'"):
        open_source(replace(data, masks=None, objective=ObjectiveConfig(name="span", options={"densty": 1})), 0)
    manifest = Path(corpus) / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(FarspanError, match="masks of the corpus with manifest sha256"):
        open_source(data, 0)


def test_stored_masks_with_other_options_are_those_drawn_with_them(tmp_path, farspan_lead):
    corpus, masks = make_corpus(str(tmp_path / "corpus")), str(tmp_path / "masks")
    run_job(plan(Masking(corpus, masks, "lead_in", options={"lead": 6})), Engine(workers=1))
    data = DataConfig(corpus=corpus, source_length=256, target_length=256)
    stored = open_source(replace(data, masks=masks), SEED)
    adjusted = open_source(replace(data, masks=masks, masks_options={"lead": 2}), SEED)
    drawn = open_source(replace(data, objective=ObjectiveConfig(name="lead_in", options={"lead": 2})), SEED)
    rows = np.arange(len(stored))[::-3]
    for field in fields(adjusted.examples(rows)):
        one, other = (getattr(source.examples(rows), field.name) for source in (adjusted, drawn))
        np.testing.assert_array_equal(one, other)
    assert adjusted.examples(rows).target_ids.shape[1] < stored.examples(rows).target_ids.shape[1]
    assert adjusted.fingerprint != stored.fingerprint
    with pytest.raises(FarspanError, match="option whole_words of objective lead_in cannot be changed on stored masks"):
        open_source(replace(data, masks=masks, masks_options={"whole_words": True}), SEED)


def test_an_objective_that_reads_text_gets_the_corpus_tokenizer(tmp_path, farspan_lead):
    corpus = make_corpus(str(tmp_path / "corpus"))
    words = ObjectiveConfig(name="lead_in", preset="words")
    data = DataConfig(corpus=corpus, source_length=256, target_length=256, objective=words)
    assert open_source(data, SEED).examples(np.arange(3)).target_lengths.min() > 0


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"objective": replace(SPAN, scorer="model")}, r"objective\.scorer is 'model', but objective span asks"),
        ({"objective": SPAN, "masks_options": {"density": 0.1}}, r"give them as objective\.options"),
        ({"objective": replace(SPAN, scorer="model"), "masks": "MASKS"}, r"holds masks that are chosen already"),
    ],
)
def test_what_would_be_passed_over_is_refused(folders, section, message):
    if "masks" in section:
        section = {**section, "masks": folders[1]}
    with pytest.raises(FarspanError, match=message):
        open_source(DataConfig(corpus=folders[0], source_length=128, target_length=64, **section), SEED)


def test_runs_on_read_and_on_drawn_masks_are_the_same_run(folders, tmp_path):
    """From the folders that a recipe names, held-out ones included."""
    losses = []
    for name, section in (("read", {"masks": folders[1]}), ("drawn", {"objective": SPAN})):
        recipe = toy_recipe(tmp_path / name, steps=6, seed=SEED, batch_size=5, micro_batch_size=5)
        recipe = replace(
            recipe,
            model=replace(
                recipe.model,
                encoder=replace(recipe.model.encoder, positions=Learned(128)),
                decoder=replace(recipe.model.decoder, positions=Learned(64)),
            ),
            data=DataConfig(corpus=folders[0], source_length=128, target_length=64, **section),
            evaluation=EvaluationConfig(corpus=folders[0], masks=section.get("masks"), every=2),
        )
        assert train(recipe, console=Console(file=StringIO())).finished
        records = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        losses.append([record.get("loss", record.get("held_out_loss")) for record in records])
    assert len(losses[0]) == 6 + 3
    assert losses[0] == losses[1]


MIXED = (
    SourceConfig(name="spans", corpus="", objective=SPAN, weight=2.0),
    SourceConfig(name="sentences", corpus="", objective=ObjectiveConfig(name="principal_sentences", preset="pegasus")),
)


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory) -> Path:
    """A corpus, and a mask set of it for each objective of ``MIXED``."""
    folder = tmp_path_factory.mktemp("artefacts")
    corpus = make_corpus(str(folder / "corpus"))
    for source in MIXED:
        asked = source.objective
        masking = Masking(
            corpus, str(folder / source.name), asked.name, preset=asked.preset, options=asked.options, seed=SEED
        )
        run_job(plan(masking), Engine(workers=1))
    return folder


def mixed(folder: Path, stored: tuple[str, ...] = ()) -> DataConfig:
    sources = [
        replace(source, corpus=str(folder / "corpus"), masks=str(folder / source.name), objective=None)
        if source.name in stored
        else replace(source, corpus=str(folder / "corpus"))
        for source in MIXED
    ]
    return DataConfig(mixture=tuple(sources), source_length=256, target_length=256)


def stages_of(*datas: DataConfig) -> list[Stage]:
    recipe = toy_recipe("unused", steps=10 * len(datas), batch_size=4)
    (stage,) = recipe.all_stages
    return [replace(stage, data=data, last_step=10 * (number + 1)) for number, data in enumerate(datas)]


def test_a_mixture_is_the_same_with_masks_read_and_drawn(artefacts):
    loaders = []
    for stored in ((), ("spans",), ("spans", "sentences")):
        stages = stages_of(mixed(artefacts, stored))
        loaders.append(Loader(stages, open_stages(stages, SEED), SEED))
    for step in range(3):
        batches = [loader.step(step) for loader in loaders]
        for others in batches[1:]:
            for one, other in zip(batches[0], others, strict=True):
                for name, tensor in one.inputs.items():
                    assert tensor is None or torch.equal(tensor, other.inputs[name])
    names = {origin.split(": ")[0] for origin in loaders[0].origins(0, np.arange(4))}
    assert names == {"spans", "sentences"}
    assert loaders[0].origins(0, np.arange(4))[0].endswith(tuple(f"row {row}" for row in range(40)))
    table = loaders[0].mixtures[0].special.ids
    assert {"<sentinel-0>", "<sent-mask>"} <= table.keys()
    assert len(set(table.values())) == len(table)


def test_parts_of_a_mixture_render_their_own_with_the_ids_of_all(artefacts):
    mixture = open_source(mixed(artefacts), SEED)
    rows = np.arange(5)
    for part, config in zip(mixture.parts, MIXED, strict=True):
        data = DataConfig(
            corpus=str(artefacts / "corpus"), objective=config.objective, source_length=256, target_length=256
        )
        alone = open_source(data, SEED)
        names = np.full(mixture.special.vocab_size, -1)
        names[list(mixture.special.ids.values())] = [alone.special.ids.get(name, -2) for name in mixture.special.ids]
        names[: alone.tokenizer_size] = np.arange(alone.tokenizer_size)
        assert np.array_equal(names[part.source.examples(rows).source_ids], alone.examples(rows).source_ids)
        assert np.array_equal(names[part.source.examples(rows).target_ids], alone.examples(rows).target_ids)


def test_stages_with_the_same_data_share_it_and_all_share_a_table(artefacts):
    one, other = mixed(artefacts), replace(mixed(artefacts), mixture=mixed(artefacts).mixture[1:])
    opened = open_stages(stages_of(one, other, one), SEED)
    assert opened[0] is opened[2]
    assert opened[0].special == opened[1].special
    alone = open_source(other, SEED)
    assert alone.special != opened[1].special
    assert alone.with_special(opened[1].special).fingerprint == opened[1].fingerprint
    with pytest.raises(FarspanError, match=r"needs special tokens <sent-mask>, which the model does not know"):
        spans = replace(one, mixture=one.mixture[:1])
        alone.with_special(open_source(spans, SEED).special)


@pytest.mark.parametrize("name", ["corpus", "spans"])
def test_damage_is_found_before_it_is_used(artefacts, tmp_path, name):
    folder = shutil.copytree(artefacts, tmp_path / "copy")
    data = mixed(folder, ("spans",))
    trusting = open_source(data, SEED)
    trusting.check_shards()
    shard = sorted((folder / name / "shards").iterdir())[0]
    sound = shard.read_bytes()

    def write(changed: bytes) -> None:
        shard.unlink()  # what is mapped stays
        shard.write_bytes(changed)

    middle = len(sound) // 2
    write(sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :])
    with pytest.raises(FarspanError, match=rf"{shard}: .*sha256"):
        open_source(data, SEED, verify=True)
    with pytest.raises(FarspanError, match=rf"{shard}: .*sha256"):
        trusting.check_shards()
    trusting.check_shards(999, 1000)  # the share of another rank
    write(sound[:-1])
    with pytest.raises(FarspanError, match=rf"source 'spans' of data.mixture: {shard}: .* bytes where the manifest"):
        open_source(data, SEED)
    shard.unlink()
    with pytest.raises(FarspanError, match=rf"{shard}: .*No such file"):
        open_source(data, SEED)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ObjectiveConfig(name="principal_sentences"), r"holds masks of objective span, the recipe asks for principal"),
        (ObjectiveConfig(name="span", options={"density": 0.3}), r"with density 0.15, the recipe asks for 0.3; give"),
    ],
)
def test_a_recipe_gets_masks_of_the_objective_that_it_names(folders, asked, message):
    data = DataConfig(corpus=folders[0], masks=folders[1], source_length=128, target_length=64)
    for agreed in (SPAN, ObjectiveConfig(name="span")):
        assert open_source(replace(data, objective=agreed), 0).fingerprint == open_source(data, 0).fingerprint
    with pytest.raises(FarspanError, match=message):
        open_source(replace(data, objective=asked), 0)


def test_rows_longer_than_the_batch_are_found_when_masks_are_drawn(folders):
    data = DataConfig(corpus=folders[0], objective=SPAN, source_length=32, target_length=64)
    with pytest.raises(FarspanError, match=r"sequence \w{32}: its source has \d+ positions, data.source_length is 32"):
        open_source(data, 0)


def test_processes_open_the_corpora_anew_and_make_the_same_batches(artefacts):
    stages = stages_of(mixed(artefacts, ("spans",)))
    here = open_mixed(stages)
    loading = LoadingConfig(processes=1)
    with prefetched(here, loading, 10, reopen=partial(open_mixed, stages)) as batches:
        for step in (0, 1):
            for one, other in zip(here.step(step), batches.step(step), strict=True):
                assert all(x is None or torch.equal(x, other.inputs[name]) for name, x in one.inputs.items())


def open_mixed(stages: list[Stage]) -> Loader:
    return Loader(stages, open_stages(stages, SEED, verify=True), SEED)
