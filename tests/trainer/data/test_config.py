"""Tests of the data section and of the curriculum."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, SourceConfig
from trainer.data.curriculum import StageConfig, stage_number
from trainer.model.patterns.block import Block

TWO = (SourceConfig(name="web", corpus="a"), SourceConfig(name="books", corpus="b", weight=2.0))


def test_lengths_are_multiples():
    with pytest.raises(FarspanError, match=r"data.source_length is 20 with data.source_multiple 8"):
        DataConfig(source_length=20, source_multiple=8, target_length=12)
    with pytest.raises(FarspanError, match=r"data.target_length is 0"):
        DataConfig(source_length=16, target_length=0)


def test_one_source_or_several():
    single = DataConfig(source_length=16, corpus="a", masks="b", masks_options={"choose": "top"})
    assert single.sources == (SourceConfig(name="data", corpus="a", masks="b", masks_options={"choose": "top"}),)
    assert DataConfig(source_length=16, mixture=TWO).sources == TWO


@pytest.mark.parametrize("beside", [{"corpus": "a"}, {"masks": "b"}, {"masks_options": {"choose": "top"}}])
def test_a_mixture_stands_alone(beside):
    with pytest.raises(FarspanError, match=r"data.mixture conflicts with data.corpus, masks"):
        DataConfig(source_length=16, mixture=TWO, **beside)


def test_few_examples_are_of_one_source():
    with pytest.raises(FarspanError, match=r"data\.examples is 0; it must be at least 1"):
        DataConfig(source_length=16, pairs="p", examples=0)
    with pytest.raises(FarspanError, match=r"data\.examples is 5 with data\.mixture; set it in each of its sources"):
        DataConfig(source_length=16, mixture=TWO, examples=5)
    with pytest.raises(FarspanError, match="source 'a': examples is 0; it must be at least 1"):
        SourceConfig(name="a", pairs="p", examples=0)
    (source,) = DataConfig(source_length=16, pairs="p", examples=5, examples_seed=3).sources
    assert (source.examples, source.examples_seed) == (5, 3)


def test_sources_have_names_of_their_own():
    with pytest.raises(FarspanError, match=r"names of the sources are 'web', 'books', 'web'; give each"):
        DataConfig(source_length=16, mixture=(*TWO, TWO[0]))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_weights_are_above_zero(weight):
    with pytest.raises(FarspanError, match=r"source 'web': weight is .*; it must be above 0"):
        SourceConfig(name="web", corpus="a", weight=weight)


@pytest.mark.parametrize("beside", [{"corpus": "a"}, {"masks": "b"}, {"masks_options": {"choose": "top"}}])
def test_pairs_stand_beside_no_corpus(beside):
    with pytest.raises(FarspanError, match=r"data.pairs conflicts with data.corpus, masks.* fine-tuning takes pairs"):
        DataConfig(source_length=16, pairs="p", **beside)
    with pytest.raises(FarspanError, match=r"source 'web': pairs conflicts with corpus, masks"):
        SourceConfig(name="web", pairs="p", **beside)
    with pytest.raises(FarspanError, match=r"data.mixture conflicts with .* or pairs"):
        DataConfig(source_length=16, mixture=TWO, pairs="p")


RECIPE = toy_recipe("unused")

SHORT = replace(RECIPE.data, source_length=16)

STAGES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9), st.booleans()), min_size=1, max_size=5)


def curriculum_of(stages):
    configs = tuple(
        StageConfig(steps=steps, batch_size=batch_size, data=SHORT if short else None)
        for steps, batch_size, short in stages
    )
    total = sum(steps for steps, *_ in stages)
    schedule = replace(RECIPE.schedule, warmup_steps=0)
    return replace(RECIPE, run=replace(RECIPE.run, steps=total), stages=configs, schedule=schedule).curriculum


@given(STAGES)
@settings(max_examples=50, deadline=None)
def test_samples_are_counted_through_stages_with_the_same_data(stages):
    """Against a loop over all steps that counts the samples of each data section, whatever stages lie between."""
    curriculum, step, seen = curriculum_of(stages), 0, {True: 0, False: 0}
    for number, (steps, batch_size, short) in enumerate(stages):
        for _ in range(steps):
            assert stage_number(curriculum, step) == number
            assert curriculum[number].samples(step) == range(seen[short], seen[short] + batch_size)
            step, seen[short] = step + 1, seen[short] + batch_size
    assert curriculum[-1].last_step == step
    assert stage_number(curriculum, step) == len(stages) - 1


def test_a_stage_changes_the_attention_and_nothing_else_of_a_model():
    stage = replace(RECIPE.curriculum[0], attention=Block(4))
    changed = stage.model(RECIPE.model)
    assert changed.encoder.attention == Block(4)
    assert replace(changed, encoder=RECIPE.model.encoder) == RECIPE.model
