"""The sections ``run`` and ``evaluation`` of a recipe."""

from __future__ import annotations

from dataclasses import fields

import pytest

from corpora.errors import FarspanError
from trainer.data.config import SourceConfig
from trainer.generation.config import GenerationConfig
from trainer.run_config import EvaluationConfig, RunConfig, ValidationConfig

RUN = {"directory": "run", "batch_size": 2, "steps": 3}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": None}, "run: neither steps nor epochs is set; give one of them"),
        ({"epochs": 2.0}, "run: both steps and epochs are set"),
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
