"""Profiles of a few updates."""

from __future__ import annotations

import gzip
import json
from io import StringIO

import pytest
from rich.console import Console

from corpora.errors import FarspanError
from tests.trainer.toy import ToySource, toy_recipe
from trainer.run.train import train


def test_a_trace_and_a_table_of_ten_operations(tmp_path):
    recipe = toy_recipe(tmp_path, steps=6, profile=(2, 3), dry_run=False)
    train(recipe, source=ToySource(), console=Console(file=StringIO()))
    trace = json.loads(gzip.decompress((tmp_path / "profile" / "trace-0.json.gz").read_bytes()))
    names = [event.get("name", "") for event in trace["traceEvents"]]
    assert sum(name.startswith("Optimizer.step") for name in names) == 2  # of six updates
    table = (tmp_path / "profile" / "operations-0.txt").read_text().splitlines()
    assert sum("aten::" in line for line in table) in range(3, 11)


@pytest.mark.parametrize("updates", [(3,), (0, 2), (5, 4), (1, 2, 3)])
def test_other_numbers_are_refused(updates: tuple[int, ...]):
    with pytest.raises(FarspanError, match=r"run\.profile is \["):
        toy_recipe("unused", profile=updates)
