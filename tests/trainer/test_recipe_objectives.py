"""Every packaged recipe says which objective it is for, and its lengths hold the worst rows of that preset."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pytest

from corpora.keyed import make_key
from objectives.api.protocol import CorpusFacts, equip, load_objective
from tests.factories import OWNED, VOCAB, make_sequences
from tests.toy_tools import TOOLS
from trainer.recipe import load_recipe
from trainer.recipe_files import list_recipes

_NAMED = re.compile(r"(\w+), preset (\w+(?: or \w+)*)")
_OPTION = re.compile(r'with option (\w+) = "(\w+)"')


def objectives_of(recipe: str) -> list[tuple[str, str, dict[str, str]]]:
    """Name, preset and options of each objective that a recipe, or the one it extends, names in its first comment."""
    text = list_recipes()[recipe].read_text("utf-8")
    values = tomllib.loads(text)
    if "data" in values and "objective" in values["data"]:
        objective = values["data"]["objective"]
        return [(objective["name"], objective["preset"], objective.get("options", {}))]
    comment = " ".join(line.removeprefix("#").strip() for line in text.partition("\n[")[0].splitlines())
    if "Objective: " not in comment:
        return objectives_of(values["extends"])
    sentence = re.split(r"\.(?: |$)", comment.partition("Objective: ")[2])[0]
    options = dict(_OPTION.findall(sentence))
    return [(name, preset, options) for name, presets in _NAMED.findall(sentence) for preset in presets.split(" or ")]


PRETRAINING = [name for name in list_recipes() if load_recipe(name).data.task is None]
PAIRS = [(name, *pair) for name in PRETRAINING for pair in objectives_of(name)]


def test_every_recipe_names_its_objective():
    assert {recipe for recipe, *_ in PAIRS} == set(PRETRAINING)
    assert ("bart_ls_large", "span", "bart_ls_mixed", {}) in PAIRS
    assert ("longt5_tglobal_base", "principal_sentences", "longt5_code", {}) in PAIRS
    assert ("tiny_led", "span", "t5", {"global_attention": "bos"}) in PAIRS


def distinct() -> list[tuple[str, str, str, dict[str, str]]]:
    """One recipe for each objective and lengths: a large one has those of its base."""
    found: dict[tuple, tuple] = {}
    for pair in PAIRS:
        data = load_recipe(pair[0]).data
        found.setdefault((*map(str, pair[1:]), data.source_length, data.target_length), pair)
    return list(found.values())


@pytest.mark.parametrize(("recipe", "name", "preset", "options"), distinct(), ids=str)
def test_lengths_hold_the_worst_rows(recipe, name, preset, options):
    """Full rows of one, a few and many documents."""
    data = load_recipe(recipe).data
    objective = equip(load_objective(name, preset, options), TOOLS)
    documents = 24
    tokens = data.source_length - 2 - 2 * documents
    facts = CorpusFacts(VOCAB, OWNED, data.source_length, tokens, documents, 2, 2)
    special = objective.validate(facts)
    begins = [np.linspace(0, tokens, parts, endpoint=False).astype(int).tolist() for parts in (1, 3, documents)]
    batch = make_sequences([tokens] * 3, begins)
    masks = objective.mask(batch, make_key(0, "worst"))
    examples = objective.render(batch, masks, special)
    assert examples.source_lengths.max() <= data.source_length
    assert examples.target_lengths.max(initial=0) <= data.target_length
    if load_recipe(recipe).model.decoder:
        assert examples.target_lengths.min() > data.target_length / 8  # it is not far too wide either
