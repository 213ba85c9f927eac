"""Tests of corpora with masks: stored, drawn, or chosen by a generator."""

import itertools
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from corpora.errors import FarspanError
from corpora.schemas.corpus import Corpus
from objectives.api.examples import IGNORED
from objectives.api.mask_set import MaskSet
from objectives.api.protocol import load_objective
from objectives.api.special_tokens import MASK, SpecialTokens
from tests.artefacts import make_corpus
from tests.trainer.joint_parts import LENGTH, data_of, open_rows
from tests.trainer.masked_folders import OPTIONS, SEED, SPAN, make_folders, stages_of
from tests.trainer.toy import toy_recipe, train_quietly
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.data.loader import Loader
from trainer.data.masked_corpus import MaskedCorpus
from trainer.model.build import build_model
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned
from trainer.run.sources import open_source


@pytest.fixture
def folders(tmp_path) -> tuple[str, str]:
    return make_folders(tmp_path)


def test_drawn_masks_are_the_stored_ones(folders):
    corpus, masks = Corpus(folders[0]), MaskSet(folders[1])
    stored = MaskedCorpus.of_masks(corpus, masks)
    objective = load_objective("span", options=OPTIONS)
    drawn = MaskedCorpus.of_objective(corpus, objective, SEED)
    assert len(stored) == len(drawn) == 9
    assert stored.special == drawn.special
    indices = np.array([8, 0, 5, 4, 0])
    one, other = stored.examples(indices), drawn.examples(indices)
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
    assert [row.tobytes() for row in one.sequence_ids] == [
        corpus.take(np.array([index])).sequence_id(0) for index in indices
    ]
    another = MaskedCorpus.of_objective(corpus, objective, SEED + 1)
    assert not np.array_equal(another.examples(indices).source_ids, one.source_ids)
    assert len({stored.fingerprint, drawn.fingerprint, another.fingerprint}) == 3


def shown(source, indices, epochs) -> list[list[int]]:
    examples = source.examples(np.array(indices), None if epochs is None else np.array(epochs))
    return [row[:size].tolist() for row, size in zip(examples.source_ids, examples.source_lengths, strict=True)]


def test_every_epoch_has_masks_of_its_own_and_stored_draws_are_the_epochs(tmp_path):
    folders = make_folders(tmp_path, draws=3)
    corpus, objective = Corpus(folders[0]), load_objective("span", options=OPTIONS)
    stored = MaskedCorpus.of_masks(corpus, MaskSet(folders[1]))
    drawn = MaskedCorpus.of_objective(corpus, objective, SEED)
    rows = list(range(9))
    epochs = [shown(drawn, rows, [epoch] * 9) for epoch in range(4)]
    for one, other in itertools.combinations(epochs, 2):
        assert all(a != b for a, b in zip(one, other, strict=True))
    assert epochs[0] == shown(drawn, rows, None) == shown(stored, rows, None)
    assert epochs[:3] == [shown(stored, rows, [epoch] * 9) for epoch in range(3)]
    assert epochs[:3] == [shown(stored, rows, [epoch] * 9) for epoch in range(3, 6)]
    mixed = [0, 3, 1, 2, 1, 0, 2, 3, 0]
    assert shown(drawn, rows, mixed) == [epochs[epoch][row] for row, epoch in enumerate(mixed)]
    fixed = MaskedCorpus.of_objective(corpus, objective, SEED, redraw=False)
    assert shown(fixed, rows, mixed) == epochs[0]
    assert len({stored.fingerprint, drawn.fingerprint, fixed.fingerprint}) == 3


def test_another_corpus_table_tool_option_or_objective_is_another_fingerprint(tmp_path):
    one, other = (Corpus(make_corpus(str(tmp_path / f"{seed}"), seed=seed)) for seed in (0, 1))
    spans, asking = (load_objective("span", options=OPTIONS) for _ in range(2))
    object.__setattr__(asking, "tools", {"scorer": "of some other day"})  # as of an objective that asks a model
    drawn = MaskedCorpus.of_objective(one, spans, SEED)
    longer = replace(drawn.special, ids={**drawn.special.ids, "<more>": drawn.special.vocab_size})
    found = [
        drawn,
        drawn.with_special(longer),
        MaskedCorpus.of_objective(one, asking, SEED),
        MaskedCorpus.of_objective(one, load_objective("span", options={"density": 0.2}), SEED),
        MaskedCorpus.of_objective(one, load_objective("principal_sentences", "pegasus"), SEED),
        MaskedCorpus.of_objective(other, spans, SEED).with_special(drawn.special),
    ]
    assert len({source.fingerprint for source in found}) == len(found)
    assert MaskedCorpus.of_objective(Corpus(one.folder), spans, SEED).fingerprint == drawn.fingerprint


def test_documents_are_numbered_only_where_they_are_kept_apart(folders):
    data = DataConfig(corpus=folders[0], source_length=128, target_length=64)
    rows = np.arange(9)
    for chosen in (replace(data, masks=folders[1]), replace(data, objective=SPAN)):
        across, apart = (open_source(replace(chosen, across_documents=value)) for value in (True, False))
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
    open_source(data)
    with pytest.raises(FarspanError, match=r"data.across_documents is false, but objective lead_in"):
        open_source(replace(data, across_documents=False))


def test_a_window_trains_with_the_tasks_global_positions_and_documents_apart(folders, tmp_path):
    recipe = toy_recipe(tmp_path / "run", steps=5, dropout=0.0)
    encoder = replace(recipe.model.encoder, positions=Learned(128), attention=Window(8), pooling=None)
    decoder = replace(recipe.model.decoder, positions=Learned(64))
    options = {**OPTIONS, "global_attention": "bos"}
    given = {"corpus": folders[0], "objective": ObjectiveConfig(name="span", options=options)}
    data = DataConfig(**given, source_length=128, target_length=64, across_documents=False)
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder, decoder=decoder), data=data)
    source = open_source(data)
    stages = [replace(stage, micro_batch_size=4) for stage in stages_of(data)]
    (batch,) = Loader(stages, [source], SEED).step(0)
    assert batch.global_positions.sum(1).tolist() == [1] * 4
    model = build_model(recipe.model, source.special.vocab_size, SEED)
    model(**batch.inputs).minimised.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    changed = batch.source_ids.masked_fill(batch.segment_ids == 1, 5)
    one, other = (
        model.encode(ids, batch.source_padding_mask, batch.segment_ids, batch.global_positions).states
        for ids in (batch.source_ids, changed)
    )
    elsewhere = batch.source_padding_mask & (batch.segment_ids != 1)
    torch.testing.assert_close(one[elsewhere], other[elsewhere], atol=1e-6, rtol=0)
    assert not torch.allclose(one[batch.segment_ids == 1], other[batch.segment_ids == 1])
    assert train_quietly(recipe).finished


def test_fingerprint_stays_when_the_data_moves(folders, tmp_path):
    before = MaskedCorpus.of_masks(Corpus(folders[0]), MaskSet(folders[1])).fingerprint
    (tmp_path / "elsewhere").mkdir()
    moved = [Path(folder).rename(tmp_path / "elsewhere" / Path(folder).name) for folder in folders]
    assert MaskedCorpus.of_masks(Corpus(str(moved[0])), MaskSet(str(moved[1]))).fingerprint == before


def test_data_that_joint_training_cannot_use_is_refused(corpus, generator):
    data = data_of(corpus)
    span = replace(data, objective=ObjectiveConfig(name="span"))
    scored = replace(data, objective=replace(data.objective, scorer="some run"))
    sources = (SourceConfig(name=name, corpus=corpus, objective=data.objective) for name in "ab")
    mixed = DataConfig(mixture=tuple(sources), source_length=LENGTH)
    for wrong in (span, scored, mixed, replace(data, masks="masks")):
        with pytest.raises(FarspanError, match=r"a generator is trained on one corpus with data.objective model_based"):
            open_rows(wrong, generator)
    with pytest.raises(FarspanError, match=r"source_length is 128, but the generator has 64 positions"):
        open_rows(data, replace(generator, positions=64))


def test_both_views_are_sources(corpus, generator):
    rows = open_rows(data_of(corpus), generator)
    candidates, indices = rows.view_candidates(), np.arange(5)
    shown = candidates.examples(indices)
    assert (shown.source_ids[shown.labels != IGNORED] == generator.special[MASK]).all()
    assert rows.examples(indices).target_lengths.all()
    equal = rows.choose(indices, np.ones(shown.labels.shape))
    assert np.array_equal(rows.examples(indices).source_ids, equal.source_ids)
    more = SpecialTokens.merge([rows.special, generator.special], rows.tokenizer_size)
    again = candidates.with_special(more)
    assert again.special == more
    assert np.array_equal(again.examples(indices).source_ids, shown.source_ids)
    other = open_rows(data_of(corpus, candidate_density=0.2), generator)
    assert len({rows.fingerprint, candidates.fingerprint, other.fingerprint}) == 2
    assert candidates.origin(0) == rows.origin(0)
    assert rows.origin(0).endswith("row 0")


def test_losses_decide_the_choice_and_padding_does_not(corpus, generator):
    rows, indices = open_rows(data_of(corpus), generator), np.arange(8)
    shown = rows.candidates(indices)
    losses = np.random.default_rng(0).random(shown.labels.shape)
    easy = rows.choose(indices, np.where(shown.labels != IGNORED, losses, 0.0))
    hard = rows.choose(indices, np.where(shown.labels != IGNORED, 1 - losses, 0.0))
    assert not np.array_equal(easy.target_ids, hard.target_ids)
    chosen, padded = (rows.choose(indices, each) for each in (losses, np.pad(losses, ((0, 0), (0, 9)))))
    assert np.array_equal(padded.target_ids, chosen.target_ids)
