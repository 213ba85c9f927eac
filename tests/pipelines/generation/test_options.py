"""Options of ``farspan generate``."""

from __future__ import annotations

from pipelines.generation.options import Generating
from tests.pipelines.typed import typed

NEEDED = {"model": "run", "pairs": "p", "output": "o"}


def test_options_of_task_and_generation_are_typed_as_values():
    line = "run --pairs p --output o --set query=none --set source_length=64 --generation beams=4"
    found = typed(Generating, line)
    assert found == Generating(**NEEDED, options={"query": "none", "source_length": 64}, generation={"beams": 4})
    assert typed(Generating, "run --pairs p --output o") == Generating(**NEEDED)
