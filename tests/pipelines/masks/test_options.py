"""Options of objectives and of ``farspan mask``."""

from __future__ import annotations

from pipelines.masks.options import Masking
from tests.pipelines.typed import typed


def test_options_of_an_objective_are_typed_as_values():
    line = "span --corpus c --output o --preset t5 --set density=0.3 --set separator=null --draws 4 --seed 2"
    assert typed(Masking, line) == Masking(
        objective="span", corpus="c", output="o", preset="t5", options={"density": 0.3, "separator": None}, draws=4,
        seed=2,
    )  # fmt: skip


def test_what_is_not_typed_is_the_default():
    assert typed(Masking, "span --corpus c --output o") == Masking(objective="span", corpus="c", output="o")
