"""Training that begins with a converted model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from tests.trainer.conversion.models import tiny_model
from tests.trainer.toy import ToySource, toy_recipe
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.sources import read_model
from trainer.conversion.vocabulary import Vocabulary
from trainer.run.train import train

KNOWN = SpecialTokens.append(24, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, ["<mask>"])  # the data has a sentinel instead


@pytest.fixture
def begun(tmp_path):
    """A model folder, and a recipe of one update that begins with it and moves nothing."""
    recipe = toy_recipe(tmp_path / "run", initial_model=str(tmp_path / "model"))
    recipe = replace(recipe, optimizer=replace(recipe.optimizer, learning_rate=1e-12, weight_decay=0.0))
    model = tiny_model(recipe.model, Vocabulary.of(KNOWN, "toy tokenizer"))
    write_model_folder(model, tmp_path / "model")
    return model, recipe


def test_training_begins_with_the_model_and_rows_for_what_the_data_has_besides(begun):
    model, recipe = begun
    train(recipe, source=ToySource(), until=1)
    trained = read_model(Path(recipe.run.directory))
    assert trained.vocabulary.special.ids == ToySource().special.ids
    assert trained.parent["step"] == 1
    for name, tensor in model.state.items():
        found = trained.state[name]
        if name == "tokens.weight":
            assert torch.allclose(found[:24], tensor[:24], atol=1e-6)
            assert (found[24] - tensor[24]).norm() < 0.5 * tensor[24].norm()  # the sentinel begins near <mask>
        else:
            assert torch.allclose(found, tensor, atol=1e-6), name


def test_a_run_goes_on_only_with_the_model_it_began_with(begun, tmp_path):
    model, recipe = begun
    train(recipe, source=ToySource(), until=1)
    assert train(recipe, source=ToySource(), until=2).step == 2
    with pytest.raises(FarspanError, match=r"initial_model: checkpoint '[0-9a-f]{64}', now None"):
        train(replace(recipe, run=replace(recipe.run, initial_model=None)), source=ToySource(), until=1)
    write_model_folder(tiny_model(model.config, model.vocabulary, seed=1), tmp_path / "other")
    with pytest.raises(FarspanError, match="initial_model: checkpoint"):
        train(
            replace(recipe, run=replace(recipe.run, initial_model=str(tmp_path / "other"))), source=ToySource(), until=1
        )


def test_another_model_than_the_recipes_is_refused_by_its_fields(begun):
    _, recipe = begun
    other = replace(recipe, model=replace(recipe.model, heads=replace(recipe.model.heads, count=4), dropout=0.2))
    with pytest.raises(FarspanError, match=r"(?s)model.heads.count: there 2, in the recipe 4.*farspan convert"):
        train(other, source=ToySource(), until=1)


def test_data_of_another_tokenizer_is_refused(begun):
    _, recipe = begun
    source = ToySource()
    source.tokenizer_fingerprint = "another tokenizer"
    with pytest.raises(FarspanError, match="make the corpus with the model's tokenizer"):
        train(recipe, source=source, until=1)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(FarspanError, match="farspan convert"):
        train(toy_recipe(tmp_path / "run", initial_model=str(tmp_path)), source=ToySource(), until=1)
