"""Tests of recipe files and of single sections."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from corpora.errors import FarspanError
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.generation.config import GenerationConfig
from trainer.generator_config import GeneratorConfig, with_scorer
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.positions import Sinusoidal
from trainer.recipe import load_recipe
from trainer.run_config import EvaluationConfig, RunConfig, ValidationConfig


def test_a_file_over_another(tmp_path):
    """Tables are merged, all else replaced; another pattern or scheme begins anew; paths start at their own file."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/middle.toml").write_text(
        'extends = "../lowest.toml"\n[run]\nsteps = 70\n[model.encoder.attention]\nsize = 256\n'
    )
    (tmp_path / "lowest.toml").write_text('extends = "tiny"\n[optimizer]\nbetas = [0.5, 0.6]\n')
    top = tmp_path / "top.toml"
    top.write_text(
        'extends = "inner/middle.toml"\n[model.encoder]\npooling = "none"\npositions = { scheme = "sinusoidal" }\n'
    )
    tiny, recipe = load_recipe("tiny"), load_recipe(str(top), ["run.seed=5"])
    encoder = replace(tiny.model.encoder, attention=Block(256), pooling=None, positions=Sinusoidal())
    assert recipe == replace(
        tiny,
        model=replace(tiny.model, encoder=encoder),
        optimizer=replace(tiny.optimizer, betas=(0.5, 0.6)),
        run=replace(tiny.run, steps=70, seed=5),
    )
    top.write_text('extends = "tiny"\n[model.encoder]\nattention = { pattern = "full" }\n')
    assert load_recipe(str(top)).model.encoder.attention == Full()


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (
            'extends = "b.toml"',
            'extends = "a.toml"',
            r"a.toml extends b.toml extends a.toml: recipes extend each other",
        ),
        ('extends = "a.toml"', "", r"a.toml extends a.toml: recipes extend each other in a circle"),
        ('extends = ["tiny"]', "", r"a.toml: extends is \['tiny'\]; give one name or path"),
        ('extends = "tine"', "", r"no recipe 'tine' \(did you mean 'tiny'\?\)"),
        ('extends = "b.toml"', "[", r"b.toml: not TOML"),
        ('extends = "tiny"\n[run]\nstepz = 7', "", r"a.toml over tiny.toml: \[run\] has no key 'stepz'"),
    ],
)
def test_files_that_cannot_be_extended(tmp_path, a, b, said):
    (tmp_path / "a.toml").write_text(a)
    (tmp_path / "b.toml").write_text(b)
    with pytest.raises(FarspanError, match=said):
        load_recipe(str(tmp_path / "a.toml"))


def test_unknown_recipes_and_broken_files(tmp_path):
    with pytest.raises(FarspanError, match=r"no recipe 'bart_ls_bas' \(did you mean 'bart_ls_base'\?\)"):
        load_recipe("bart_ls_bas")
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\n")
    with pytest.raises(FarspanError, match=r"broken.toml: not TOML"):
        load_recipe(str(broken))
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(FarspanError, match=r"broken.toml: not TOML"):
        load_recipe(str(broken))
    broken.write_text("[run]\nsteps = 3\n")  # the whole is looked at before its parts
    with pytest.raises(FarspanError, match=r"broken.toml lacks model, data; add what is missing"):
        load_recipe(str(broken))


@pytest.mark.parametrize(("given", "length"), [("epochs = 3", (None, 3.0)), ("steps = 3", (3, None))])
def test_a_length_in_a_file_replaces_the_length_that_it_extends(tmp_path, given, length):
    below, above = tmp_path / "below.toml", tmp_path / "above.toml"
    below.write_text('extends = "tiny"\n[run]\nepochs = 7\n[schedule]\nwarmup_steps = 0\n')
    above.write_text(f'extends = "below.toml"\n[run]\n{given}\n')
    run = load_recipe(str(above)).run
    assert (run.steps, run.epochs) == length
    assert load_recipe(str(above), ["run.steps=9"]).run.epochs is None


RUN = {"directory": "run", "batch_size": 2, "steps": 3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": None}, "run: none of steps, epochs, tokens is set; give one of them"),
        ({"epochs": 2.0}, "run: steps and epochs are set"),
        ({"steps": None, "epochs": float("nan")}, "run.epochs is nan; it must be above 0 and finite"),
        ({"steps": None, "epochs": float("inf")}, "run.epochs is inf"),
        ({"steps": 0}, "run.steps is 0; it must be at least 1"),
        ({"batch_size": 0}, "run.batch_size is 0"),
        ({"micro_batch_size": -1}, "run.micro_batch_size is -1"),
        ({"max_skipped": 0}, "run.max_skipped is 0"),
        ({"extend": (4, 0)}, r"run.extend is \[4, 0\]; each number of updates must be at least 1"),
        ({"directory": ""}, "run.directory is ''; name a folder"),
    ],
)
def test_runs_that_cannot_be_are_refused(changes, said):
    with pytest.raises(FarspanError, match=said):
        RunConfig(**{**RUN, **changes})


@pytest.mark.parametrize("field", ["every", "limit", "batch_positions"])
def test_generation_of_nothing_is_refused(field):
    with pytest.raises(FarspanError, match=rf"evaluation.generation.{field} is 0; it must be at least 1"):
        ValidationConfig(metrics="f1", **{field: 0})
    with pytest.raises(FarspanError):  # as options of generation alone
        ValidationConfig(metrics="f1", beams=0)


def test_the_search_of_a_validation_is_generation_with_its_options():
    section = ValidationConfig(metrics="f1", beams=3, max_tokens=7, limit=5, every=2)
    assert type(section.search) is GenerationConfig
    for field in fields(GenerationConfig):
        assert getattr(section.search, field.name) == getattr(section, field.name)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"every": 0}, "evaluation.every is 0"),
        ({"sequences": 0}, "evaluation.sequences is 0"),
        ({"patience": 0}, "evaluation.patience is 0"),
        ({"pairs": "p", "masks": "m"}, "evaluation.pairs conflicts with evaluation.corpus or masks; give one of them"),
        ({"mixture": (SourceConfig(name="a", corpus="c"),), "pairs": "p"}, "name the sources in one of the two ways"),
        ({"mixture": (SourceConfig(name="a", corpus="c"),) * 2}, "the names of the sources are 'a', 'a'"),
    ],
)
def test_evaluations_that_cannot_be_are_refused(section, said):
    with pytest.raises(FarspanError, match=said):
        EvaluationConfig(**section)


MODEL = toy_recipe("unused").model

ENCODER = replace(MODEL, decoder=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set either initial"),
        ({"mode": "joint", "initial": "run", "model": ENCODER}, "set either initial"),
        ({"model": ENCODER}, "random, untrained weights"),
        ({"mode": "joint", "model": MODEL}, "decoder"),
        ({"initial": "run", "weight": 0.0}, "weight is 0.0"),
        ({"initial": "run", "weight": float("nan")}, "weight is nan"),
    ],
)
def test_bad_sections_are_refused(options, message):
    with pytest.raises(FarspanError, match=message):
        GeneratorConfig(**options)


def test_a_scorer_goes_to_objectives_that_ask_for_one():
    ask, own = ObjectiveConfig(name="model_based"), ObjectiveConfig(name="model_based", scorer="own")
    span = ObjectiveConfig(name="span")
    data = DataConfig(corpus="c", objective=ask, source_length=8)
    assert with_scorer(data, "run").objective == replace(ask, scorer="run")
    for left in (replace(data, objective=own), replace(data, objective=span), replace(data, masks="m")):
        assert with_scorer(left, "run") == left
    mixture = tuple(
        SourceConfig(name=str(n), corpus="c", objective=objective) for n, objective in enumerate((ask, own, span))
    )
    mixed = with_scorer(DataConfig(mixture=mixture, source_length=8), "run")
    assert [source.objective.scorer for source in mixed.mixture] == ["run", "own", None]
