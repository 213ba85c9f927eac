"""Recipe files: the packaged ones, one over another, and files that cannot be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from trainer.model.patterns.block import Block
from trainer.model.patterns.full import Full
from trainer.model.positions import Sinusoidal
from trainer.recipe import load_recipe


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
