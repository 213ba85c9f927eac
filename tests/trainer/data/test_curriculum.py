"""The stages of a curriculum: every step belongs to one, and samples are counted through them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.toy import toy_recipe
from trainer.data.curriculum import StageConfig, stage_number
from trainer.model.patterns.block import Block

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
    """Against a loop over all steps: a stage continues the count of the one before it if both have the same data."""
    curriculum, step, sample = curriculum_of(stages), 0, 0
    for number, (steps, batch_size, short) in enumerate(stages):
        if number and short != stages[number - 1][2]:
            sample = 0
        for _ in range(steps):
            assert stage_number(curriculum, step) == number
            assert curriculum[number].samples(step) == range(sample, sample + batch_size)
            step, sample = step + 1, sample + batch_size
    assert curriculum[-1].last_step == step
    assert stage_number(curriculum, step) == len(stages) - 1


def test_a_stage_changes_the_attention_and_nothing_else_of_a_model():
    stage = replace(RECIPE.curriculum[0], attention=Block(4))
    changed = stage.model(RECIPE.model)
    assert changed.encoder.attention == Block(4)
    assert replace(changed, encoder=RECIPE.model.encoder) == RECIPE.model
