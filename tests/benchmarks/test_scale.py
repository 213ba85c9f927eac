"""The benchmark of scale at a seventh of a full cluster: recall and memory, whatever the time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_hundred_thousand_vectors_keep_their_recall_in_two_gigabytes(tmp_path):
    measured = tmp_path / "measured.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--documents", "200000", "--json", str(measured)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    steps = {step["name"]: step for step in json.loads(measured.read_text())["measured"]["steps"]}
    neighbours = steps["neighbours"]
    assert neighbours["recall"]["of 10"] >= 0.95
    assert neighbours["recall"]["of k"] >= 0.93
    assert {name for name, step in steps.items() if step["memory"] > 2 << 30} == set()
    assert list(steps) == ["cluster", "one cluster", "neighbours", "link"]
