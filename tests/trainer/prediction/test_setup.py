from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from corpora.errors import FarspanError
from tests.trainer.conversion.models import tiny_model
from tests.trainer.toy import toy_recipe
from trainer.data.config import DataConfig, SourceConfig, TaskConfig
from trainer.generation.config import GenerationConfig
from trainer.prediction.opened import OpenedModel
from trainer.prediction.setup import choose_config, choose_task
from trainer.run_config import EvaluationConfig, ValidationConfig

FIRST, SECOND = TaskConfig(options={"query": "first"}), TaskConfig(options={"query": "none"})


def opened_of(*tasks, generation=None, target_length=12):
    """A model whose run was trained on the given tasks, or a folder."""
    recipe = None
    if tasks:
        sources = tuple(SourceConfig(name=str(n), pairs="pairs", task=task) for n, task in enumerate(tasks))
        recipe = toy_recipe("run")
        data = DataConfig(mixture=sources, source_length=24, target_length=target_length, source_multiple=8)
        recipe = replace(recipe, data=data, evaluation=EvaluationConfig(generation=generation))
    return OpenedModel(Path("run"), tiny_model(), recipe, {})


def test_the_task_is_that_of_the_run_unless_another_is_named():
    assert choose_task(opened_of(FIRST, FIRST), None, None, {}) == FIRST
    changed = choose_task(opened_of(FIRST), None, None, {"source_length": 64})
    assert changed.options == {"query": "first", "source_length": 64}
    assert choose_task(opened_of(FIRST), "led", None, {}) == TaskConfig(name="led")
    assert choose_task(opened_of(FIRST), None, "led", {}) == TaskConfig(name="led")
    assert choose_task(opened_of(), "text_to_text", "led", {"end": False}).preset == "led"


@pytest.mark.parametrize(("tasks", "message"), [((), "names no task"), ((FIRST, SECOND), "trained on several tasks")])
def test_a_task_has_to_be_known(tasks, message):
    with pytest.raises(FarspanError, match=message):
        choose_task(opened_of(*tasks), None, None, {})


def test_options_come_from_flags_before_the_recipe_before_the_lengths():
    section = ValidationConfig(metrics="f1", beams=3, max_tokens=7, limit=5)
    assert choose_config(opened_of(FIRST, generation=section), {}) == GenerationConfig(beams=3, max_tokens=7)
    flags = {"max_tokens": 9, "length_penalty": 2.0}
    found = choose_config(opened_of(FIRST, generation=section), flags)
    assert found == GenerationConfig(beams=3, max_tokens=9, length_penalty=2.0)
    assert choose_config(opened_of(FIRST), {}).max_tokens == 11  # targets of 12 positions, their end included
    assert choose_config(opened_of(), {}).max_tokens == 15  # a decoder of 16 positions, the start included
