"""Mixture files of `farspan corpus long`: the keys that are read, and refusals with the file, the key and the cure."""

from __future__ import annotations

import os
import re
from dataclasses import fields

import pytest

from corpora.errors import FarspanError
from corpora.packing.mixture import Source, mix
from pipelines.corpus.mixture_file import MixtureFile, MixtureSource, read_mixture_file

WHOLE = """
sequence_length = 128
documents = "documents"
tokens = 1000
[sources.books]
weight = 0.75
[sources.news]
weight = 0.25
epochs = 2
"""


@pytest.fixture
def recipe(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "mixture.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_recipe_is_read_with_its_defaults(recipe):
    found = read_mixture_file(recipe(WHOLE))
    assert (found.sequence_length, found.tokens, found.on_cap, found.short_documents) == (128, 1000, "stop", "within")
    assert {name: (source.weight, source.epochs) for name, source in found.sources.items()} == {
        "books": (0.75, 1.0),
        "news": (0.25, 2),
    }
    assert (found.rows.capacity, found.windows.overlap) == (126, 0)
    assert found.inputs("mixture.toml") == ()


def test_sources_with_inputs_are_found(recipe, tmp_path):
    (tmp_path / "a.txt").write_text("One.")
    text = f'sequence_length = 128\ntokenizer = "t"\n[sources.a]\ninput = "{tmp_path}/a.txt"\nmin_tokens = 3\n'
    (item,) = read_mixture_file(recipe(text)).inputs("mixture.toml")
    assert (item.source, item.read.min_tokens) == ("a", 3)
    with pytest.raises(FarspanError, match="add tokenizer = "):
        read_mixture_file(recipe(text.replace('tokenizer = "t"\n', ""))).inputs("mixture.toml")
    with pytest.raises(FarspanError, match=r"\[sources\.b\] has no input, others have"):
        read_mixture_file(recipe(text + "[sources.b]\n")).inputs("mixture.toml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("weight = 0.75", "wieght = 0.75"), "wieght.*weight"),
        (("sequence_length", "sequence_lenght"), "sequence_lenght.*sequence_length"),
        (("= 128", '= "128"'), "sequence_length"),
        (("[sources.books]", '[sources."a/b"]'), r"leave ':' and '/' out of it"),
        (("weight = 0.75", "weight = 0.5"), "weights"),
        (("weight = 0.75", "weight = 0.75\nmin_characters = 3"), r"\[sources\.books\] min_characters has no effect"),
        (("tokens = 1000", 'tokenizer = "t"'), "tokenizer has no effect"),
        (("tokens = 1000", "stride = 500"), "stride"),
        (("tokens = 1000", "tokens = "), "not TOML"),
    ],
)
def test_mistakes_name_the_file_and_the_key(recipe, change, message):
    path = recipe(WHOLE.replace(*change))
    with pytest.raises(FarspanError, match=message) as caught:
        read_mixture_file(path)
    assert "mixture.toml" in str(caught.value) or "stride" in str(caught.value)


def test_a_recipe_needs_a_source_and_a_file(recipe, tmp_path):
    with pytest.raises(FarspanError, match="no source; add a table"):
        read_mixture_file(recipe("sequence_length = 128\n[sources]\n"))
    with pytest.raises(FarspanError, match=r"nothing\.toml: No such file"):
        read_mixture_file(str(tmp_path / "nothing.toml"))


EXAMPLE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "examples", "long_mixture.toml")


def test_the_example_recipe_explains_every_key():
    with open(EXAMPLE) as file:
        lines = file.read().split("\n[sources.books3]")
    for text, kind in zip(lines, (MixtureFile, MixtureSource), strict=True):
        keys = set(re.findall(r"^(?:# )?(\w+) = ", text, re.MULTILINE))
        assert keys == {one.name for one in fields(kind)} - {"sources", "pairs"}  # fields of pairs are those of a job


@pytest.mark.parametrize("instead", [{}, {"weight": "# weight", "# temperature": "temperature"}])
def test_what_the_example_shows_in_comments_can_be_said(tmp_path, instead):
    with open(EXAMPLE) as file:
        text = file.read()
    text = re.sub(r"^# (?!temperature|source)(\w+ = )", r"\1", text, flags=re.MULTILINE)
    for before, after in instead.items():
        text = re.sub(rf"^{before} = ", f"{after} = ", text, flags=re.MULTILINE)
    (tmp_path / "mixture.toml").write_text(text)
    recipe = read_mixture_file(str(tmp_path / "mixture.toml"))
    assert recipe.tokens == 2_000_000_000
    assert recipe.sources["stories"].separator == "-----"
    assert (recipe.temperature is None) == (not instead)


def test_the_example_recipe_has_the_published_shares():
    recipe = read_mixture_file(EXAMPLE)
    millions = {"books3": 26_293, "stories": 7_958, "realnews": 6_834, "opensubtitles": 3_839, "mediasum": 974}
    mixture = mix({name: Source(millions[name] * 10**6, s.weight, s.epochs) for name, s in recipe.sources.items()})
    assert {name: float(share.epochs) for name, share in mixture.shares.items()} == pytest.approx(
        dict.fromkeys(millions, 1.0), rel=1e-3
    )
