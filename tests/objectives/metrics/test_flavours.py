"""Flavours of ROUGE: what each declares, and the lines that it makes of a text."""

from __future__ import annotations

import re

import numpy as np
import pytest

from objectives.metrics import flavours
from objectives.metrics.flavours import FLAVOURS

KEYS = {"rouge1", "rouge2", "rougeL", "rougeLsum"}


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_flavour_computes_what_it_publishes(name):
    flavour = FLAVOURS[name]
    assert flavour.longest in flavour.measures
    assert set(flavour.measures) <= KEYS
    assert all(set(parts) <= set(flavour.measures) for parts in flavour.averages.values())
    assert flavour.primary in {"rouge/geometric_mean", *flavour.averages}
    described = flavour.described(name)
    assert described.startswith(f"ROUGE, flavour {name} ({flavour.numbers}); {flavour.tool}, ")
    assert ("APPROXIMATE" in described) == bool(flavour.approximate)
    assert "\n" not in described


def test_each_way_of_splitting_into_lines():
    text = "One . Two.  Three. Four .Five"
    assert FLAVOURS["t5"].lines(text) == "One .\nTwo.  Three. Four .Five"
    assert FLAVOURS["files2rouge-like"].lines(text) == "One .\n Two.  Three. Four .\nFive"
    assert FLAVOURS["primera"].lines(text) == text
    for flavour in FLAVOURS.values():
        if not flavour.needs_punkt or flavours.punkt() is not None:
            assert re.sub(r"\s+", "", flavour.lines(text)) == re.sub(r"\s+", "", text)


def test_sentences_of_punkt_become_lines(monkeypatch):
    """With a splitter in place of Punkt, whose data may be missing."""

    class Halves:
        def boundaries(self, text):
            return np.array([0, len(text) // 2])

    monkeypatch.setattr(flavours, "punkt", Halves)
    assert FLAVOURS["scrolls"].lines("ab  cd") == "ab\ncd"
    assert "rougeLsum" in FLAVOURS["scrolls"].measures
    monkeypatch.setattr(flavours, "punkt", lambda: None)
    assert "rougeLsum" not in FLAVOURS["scrolls"].measures
    assert "rougeLsum left out" in FLAVOURS["scrolls"].described("scrolls")
