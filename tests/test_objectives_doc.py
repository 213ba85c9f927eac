"""docs/objectives.md: its example works, and it names every objective and preset."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corpora.keyed import make_key
from objectives.api.laws import LAWS
from objectives.api.protocol import CorpusFacts, Objective, installed
from objectives.api.trial import Trial
from tests.factories import OWNED, VOCAB, make_sequences

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "objectives.md").read_text("utf-8")


def example(number: int, name: str) -> Any:
    """A class of the page."""
    block = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[number]
    scope: dict[str, Any] = {"__name__": __name__}  # a dataclass looks for its module
    exec(block, scope)
    return scope[name]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("number", "name"), [(0, "RandomSentences"), (1, "LastSentences")])
def test_the_examples_obey_the_laws(number, name, law):
    kind = example(number, name)
    batch = make_sequences([200, 60, 5, 2], 3, mean_sentence=6)
    facts = CorpusFacts(VOCAB, OWNED, 210, 200, 3)
    assert list(law(Trial(lambda options: kind(**(options or {})), batch, facts))) == []


def test_the_example_of_an_own_objective_works():
    objective = example(1, "LastSentences")(sentences=3)
    assert isinstance(objective, Objective)
    batch = make_sequences([200, 60, 5, 0], 3)
    special = objective.validate(CorpusFacts(VOCAB, OWNED, 210, 200, 3))
    masks = objective.mask(batch, make_key(0, "mask"))
    examples = objective.render(batch, masks, special)
    assert np.array_equal(examples.source_lengths, masks.source_lengths)
    assert np.array_equal(examples.target_lengths, masks.target_lengths)
    assert masks.span_starts.lengths[0] >= 1
    for row in range(4):
        borders = [*batch.document_starts[row][1:], batch.tokens.lengths[row]]
        ends = masks.span_starts[row] + masks.span_lengths[row]
        assert set(ends.tolist()) <= set(borders)
        for start in masks.span_starts[row]:
            assert start in batch.sentence_starts[row]


def test_every_objective_and_preset_is_named():
    for name, entry in installed().items():
        if entry.value.startswith("objectives."):
            for word in (name, *entry.load().presets):
                assert f"`{word}`" in TEXT, word
