from __future__ import annotations

from dataclasses import replace

import pytest

from corpora.errors import FarspanError
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, ObjectiveConfig, SourceConfig
from trainer.generator_config import GeneratorConfig, with_scorer

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
