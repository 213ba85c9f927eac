"""Training that begins with a converted model."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BartConfig

from corpora.errors import FarspanError
from objectives.api.special_tokens import SpecialTokens
from tests.artefacts import make_corpus, make_documents, make_pairs, small_tokenizer
from tests.trainer.conversion.models import tiny_model
from tests.trainer.toy import ToySource, toy_recipe, train_quietly
from trainer.conversion.convert import convert, read_model
from trainer.conversion.model_folder import write_model_folder
from trainer.conversion.vocabulary import Vocabulary
from trainer.data.config import DataConfig, ObjectiveConfig, TaskConfig
from trainer.model.patterns.window import Window
from trainer.model.positions import Learned
from trainer.optim.optimizer import OptimizerConfig
from trainer.options import Conversion
from trainer.recipe import read_recipe
from trainer.run.train import train

KNOWN = SpecialTokens.append(24, {"<pad>": 0, "<bos>": 1, "<eos>": 2}, ["<mask>"])  # the data has a sentinel instead

STILL = OptimizerConfig(learning_rate=1e-12, weight_decay=0.0, clip_norm=1.0)


def beginning_with(recipe, model: Path | str | None):
    return replace(recipe, run=replace(recipe.run, initial_model=model and str(model)))


@pytest.fixture
def begun(tmp_path):
    """A model folder, and a recipe of one update that begins with it and moves nothing."""
    recipe = replace(toy_recipe(tmp_path / "run", initial_model=str(tmp_path / "model")), optimizer=STILL)
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
        train(beginning_with(recipe, None), source=ToySource(), until=1)
    write_model_folder(tiny_model(model.config, model.vocabulary, seed=1), tmp_path / "other")
    with pytest.raises(FarspanError, match="initial_model: checkpoint"):
        train(beginning_with(recipe, tmp_path / "other"), source=ToySource(), until=1)


def test_another_model_than_the_recipes_is_refused_by_its_fields(begun):
    _, recipe = begun
    other = replace(recipe, model=replace(recipe.model, heads=replace(recipe.model.heads, count=4), dropout=0.2))
    with pytest.raises(FarspanError, match=r"(?s)model.heads.count: the model has 2, the recipe 4.*farspan convert"):
        train(other, source=ToySource(), until=1)
    adopted = replace(other, run=replace(other.run, adopt_model=True))
    assert train(adopted, source=ToySource(), until=1).step == 1
    kept = read_recipe(Path(recipe.run.directory))
    assert kept is not None
    assert kept.model == replace(recipe.model, dropout=0.2)
    assert train(adopted, source=ToySource(), until=2).step == 2
    with pytest.raises(FarspanError, match=r"run.initial_model nowhere: does not exist"):
        train(beginning_with(adopted, "nowhere"), source=ToySource(), until=1)


def test_data_of_another_tokenizer_is_refused(begun):
    _, recipe = begun
    source = ToySource()
    source.tokenizer_fingerprint = "another tokenizer"
    with pytest.raises(FarspanError, match="make the corpus with the model's tokenizer"):
        train(recipe, source=source, until=1)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(FarspanError, match="holds no model; give a model folder of farspan, a folder of Hugging Face"):
        train(toy_recipe(tmp_path / "run", initial_model=str(tmp_path)), source=ToySource(), until=1)


@pytest.mark.parametrize("trace", ["recipe.json", "checkpoints/run.lock"])
def test_a_run_without_a_checkpoint_is_refused_with_the_cure(tmp_path, trace):
    path = tmp_path / "first" / trace
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    recipe = toy_recipe(tmp_path / "second", initial_model=str(tmp_path / "first"))
    with pytest.raises(FarspanError, match=r"run.initial_model .*first: this run has no checkpoint yet; let it reach"):
        train(recipe, source=ToySource(), until=1)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("farspan", "model.heads.count: the model has 4, the recipe 2"),
        ("huggingface", "model.width: the model has 32, the recipe 16"),
        ("run", "model.width: the model has 8, the recipe 16"),
        ("none", "model: does not exist; give a model folder of farspan"),
    ],
)
def test_the_initial_model_is_checked_before_any_data_is_opened(tmp_path, kind, said):
    """By its configuration: none of these has weights that could be read."""
    recipe = toy_recipe(tmp_path / "run", initial_model=str(tmp_path / "model"))
    recipe = replace(recipe, data=DataConfig(pairs="nowhere", source_length=24, target_length=12))
    if kind == "farspan":
        write_model_folder(tiny_model(), tmp_path / "model")
        (tmp_path / "model/model.safetensors").unlink()
    elif kind == "huggingface":
        sizes: dict[str, Any] = {"d_model": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        (tmp_path / "model").mkdir()
        BartConfig(**sizes).save_pretrained(tmp_path / "model")
    elif kind == "run":
        narrow = toy_recipe(tmp_path / "model", dry_run=False)
        train(replace(narrow, model=replace(narrow.model, width=8)), source=ToySource(), until=1)
        (weights,) = (tmp_path / "model").glob("checkpoints/*/model")
        shutil.rmtree(weights)
    with pytest.raises(FarspanError, match=said):
        train(recipe)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> str:
    place = tmp_path_factory.mktemp("data")
    documents = make_documents(str(place / "documents"), shards=1, documents=20)
    return make_pairs(str(place / "pairs"), documents, documents_per_pair=2)


def fine_tuned(directory: Path, pairs: str, **run):
    """A recipe of one update on pairs that moves nothing; its task separates documents by <doc-s>."""
    task = TaskConfig(options={"separator": "<doc-s>", "source_length": 64, "target_length": 12})
    recipe = toy_recipe(directory, dry_run=False, **run)
    encoder = replace(recipe.model.encoder, positions=Learned(64))
    return replace(
        recipe,
        model=replace(recipe.model, encoder=encoder),
        data=DataConfig(pairs=pairs, task=task, source_length=64, target_length=12, source_multiple=8),
        optimizer=STILL,
    )


def assert_begun_with(recipe, state):
    """All weights are those of ``state``, ids of the tokenizer have their rows, and <doc-s> has one of its own."""
    train_quietly(recipe, until=1)
    trained = read_model(Path(recipe.run.directory))
    words = small_tokenizer().vocab_size
    number = trained.vocabulary.special["<doc-s>"]
    assert number >= words
    for name, tensor in state.items():
        if name == "tokens.weight":
            assert torch.allclose(trained.state[name][:words], tensor[:words], atol=1e-6)
            mean = tensor.mean(0)
            assert 0 < (trained.state[name][number] - mean).norm() < 0.5 * mean.norm()
        else:
            assert torch.allclose(trained.state[name], tensor, atol=1e-6), name
    assert len(trained.state["tokens.weight"]) == trained.vocabulary.size


def test_fine_tuning_begins_with_a_pretraining_run(pairs, tmp_path):
    """With the checkpoint that is named; it knows sentinels, and not <doc-s>, which begins near the mean row."""
    corpus = make_corpus(str(tmp_path / "corpus"), documents=20, sequence_length=48)
    objective = ObjectiveConfig(name="span", options={"density": 0.1})
    tuned = fine_tuned(tmp_path / "tuned", pairs, initial_model=str(tmp_path / "run"), initial_checkpoint="2")
    data = DataConfig(corpus=corpus, objective=objective, source_length=64, target_length=12, source_multiple=8)
    before = toy_recipe(tmp_path / "run", steps=5, dry_run=False, checkpoint_every=2)
    train_quietly(replace(before, model=tuned.model, data=data), until=4)
    begun = read_model(tmp_path / "run", "2")
    assert "<sentinel-0>" in begun.vocabulary.special.ids
    assert_begun_with(tuned, begun.state)
    newest = replace(tuned, run=replace(tuned.run, initial_checkpoint=None))
    with pytest.raises(FarspanError, match="initial_model: checkpoint"):
        train_quietly(newest, until=2)


@pytest.mark.parametrize("to", ["farspan", "huggingface"])
def test_fine_tuning_begins_with_a_converted_model_or_a_folder_of_hugging_face(pairs, tmp_path, to):
    """The conversion tiles the positions of a short model."""
    tokenizer = small_tokenizer()
    recipe = fine_tuned(tmp_path / "tuned", pairs, initial_model=str(tmp_path / "model"))
    encoder = recipe.model.encoder
    if to == "huggingface":  # LED
        encoder = replace(encoder, attention=Window(8), pooling=None)
    recipe = replace(recipe, model=replace(recipe.model, encoder=encoder))
    owned = {name: number for name, number in tokenizer.owned_tokens.items() if name != "<mask>"}
    known = Vocabulary.of(SpecialTokens.append(tokenizer.vocab_size, owned), tokenizer.fingerprint)
    short = replace(recipe.model, encoder=replace(encoder, positions=Learned(32)))
    begun = replace(tiny_model(short, known), tokenizer=tokenizer.serialized())
    write_model_folder(begun, tmp_path / "short")
    with pytest.raises(FarspanError, match=r"(?s)model.encoder.positions.count: the model has 32.*extends position t"):
        train(beginning_with(recipe, tmp_path / "short"), until=1)
    longer = Conversion(to=to, assignments=("model.encoder.positions.count=64",))
    convert(tmp_path / "short", tmp_path / "model", longer)
    name = "encoder.embedded.positions.weight"
    assert_begun_with(recipe, {**begun.state, name: begun.state[name].repeat(2, 1)})
