"""Differences between configurations, and the form of a recipe that a configuration is read back from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corpora.settings import parse
from tests.trainer.conversion.models import tiny_config
from trainer.conversion.adapt import TRAINING, differences, flat, given
from trainer.model.config import ModelConfig
from trainer.model.positions import Learned
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

CONFIG = tiny_config()


@pytest.mark.parametrize("name", list_recipes())
def test_a_configuration_is_read_back_from_the_form_of_a_recipe(name):
    config = load_recipe(name).model
    assert parse(ModelConfig, given(config), "test", "model") == config
    assert differences(config, config, allowed=()) == []


def test_every_difference_has_its_dotted_field_and_both_values():
    other = replace(CONFIG, encoder=replace(CONFIG.encoder, layers=5, positions=Learned(99)), init_std=0.5)
    expected = [("encoder.layers", 2, 5), ("encoder.positions.count", 16, 99)]
    assert differences(CONFIG, other) == expected
    assert differences(CONFIG, other, allowed=()) == [*expected, ("init_std", 0.3, 0.5)]
    assert differences(other, CONFIG, allowed=()) == [
        (name, theirs, ours) for name, ours, theirs in differences(CONFIG, other, allowed=())
    ]
    assert differences(CONFIG, other, allowed=("encoder.*", *TRAINING)) == []


def test_a_part_that_one_model_lacks_is_listed_field_by_field():
    alone = replace(CONFIG, decoder=None)
    found = {name: (ours, theirs) for name, ours, theirs in differences(CONFIG, alone)}
    assert found["decoder.layers"] == (1, None)
    assert all(name.startswith("decoder.") and theirs is None for name, (_, theirs) in found.items())


def test_heads_of_the_default_width_are_those_of_the_same_width_in_numbers():
    written = replace(CONFIG, heads=replace(CONFIG.heads, width=4))
    assert flat(CONFIG)["heads.width"] == 4
    assert differences(CONFIG, written) == []
    assert differences(CONFIG, replace(CONFIG, heads=replace(CONFIG.heads, width=6))) == [("heads.width", 4, 6)]
