"""Every implementation of a tool has the members of its interface, with the same parameters."""

from __future__ import annotations

import inspect
import re

import pytest

from objectives.api.tools import EntityRecognizer, Scorer
from objectives.sentences.entities import SpacyRecognizer
from tests.toy_tools import ToyRecognizer, ToyScorer
from trainer.scorer.scorers import MaskedLMScorer


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
