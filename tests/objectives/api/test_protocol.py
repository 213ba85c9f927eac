"""Finding objectives by name, ours and a third party's."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

from corpora.errors import FarspanError
from objectives.api.protocol import CorpusFacts, EntityRecognizer, Objective, Scorer, load_objective
from objectives.sentences.entities import SpacyRecognizer
from objectives.span import Span
from tests.factories import OWNED
from tests.toy_tools import ToyRecognizer, ToyScorer
from trainer.scorer.scorers import MaskedLMScorer


def test_span_is_installed_with_its_presets():
    objective = load_objective("span", "bart_ls", {"target_length": 512})
    assert objective == Span(1 / 16, 5, "ascending", True, None, target_length=512, fit="reduce")
    assert isinstance(objective, Objective)
    assert load_objective("span") == Span()


@pytest.mark.parametrize("null", [None, "null"])
def test_a_recipe_spells_null_as_a_word(null):
    assert load_objective("span", "bart_ls", {"separator": null}).separator is None
    assert load_objective("principal_sentences", "pegasus", {"target_length": null}).target_length is None
    with pytest.raises(FarspanError, match=r"option sentinel_order is .?null.?; give descending or ascending"):
        load_objective("span", "t5", {"sentinel_order": null})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("spam",), r"no objective is called 'spam' \(did you mean 'span'\?\); installed: .*span"),
        (("span", "bart"), r"objective span has no preset 'bart'.*its presets: t5, bart_ls, bart_ls_8k, bart_ls_mixed"),
        (("span", None, {"densety": 0.1}), r"no option 'densety' \(did you mean 'density'\?\); its options: density, "),
        (("span", "t5", {"density": 2}), r"option density is 2; give a number between 0 and 1"),
    ],
)
def test_unknown_names_are_answered_with_the_known_ones(arguments, message):
    with pytest.raises(FarspanError, match=message):
        load_objective(*arguments)


def test_a_third_partys_objective_is_found_with_options_and_checks(farspan_lead):
    objective = load_objective("lead_in", "short")
    assert isinstance(objective, Objective)
    assert objective.options == {"lead": 2, "whole_words": False}
    special = objective.validate(CorpusFacts(400, OWNED, 128, 120, 3))
    assert special["<gap>"] == 400
    with pytest.raises(FarspanError, match="option lead is 0"):
        load_objective("lead_in", None, {"lead": 0})
    with pytest.raises(FarspanError, match="give at most 119"):
        load_objective("lead_in", None, {"lead": 500}).validate(CorpusFacts(400, OWNED, 128, 120, 3))


def test_another_process_finds_it_too(farspan_lead):
    code = "from objectives.api.protocol import load_objective; print(load_objective('lead_in').options)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'lead': 8, 'whole_words': False}"


def lacks(kind: type, interface: type) -> list[str]:
    """Members of the interface that a class lacks, or whose parameters differ."""
    found = []
    for name, member in vars(interface).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            sound = hasattr(kind, name) or re.search(rf"self\.{name}(,| =) ", inspect.getsource(kind)) is not None
        else:
            own = getattr(kind, name, None)
            sound = callable(own) and [*inspect.signature(own).parameters] == [*inspect.signature(member).parameters]
        if not sound:
            found.append(name)
    return found


@pytest.mark.parametrize(
    ("kind", "interface"),
    [
        (SpacyRecognizer, EntityRecognizer),
        (ToyRecognizer, EntityRecognizer),
        (MaskedLMScorer, Scorer),
        (ToyScorer, Scorer),
    ],
)
def test_an_implementation_has_every_member(kind, interface):
    assert lacks(kind, interface) == []


def test_a_class_of_another_kind_is_seen():
    assert lacks(ToyRecognizer, Scorer) == ["fingerprint", "tokenizer_fingerprint", "special", "losses"]
