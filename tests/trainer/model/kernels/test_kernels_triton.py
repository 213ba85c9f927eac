"""Kernels that PyTorch generates for an H100, compiled for it and interpreted on the CPU (``make test-kernels``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.environments import environment

pytestmark = pytest.mark.kernels

ROOT = Path(__file__).parents[4]
SHARED_MEMORY = 227 << 10
"""Bytes of shared memory that a block of threads can have on an H100."""

PATTERNS = ["window", "span", "local", "tglobal", "block_global", "merged"]
CASES = [f"{pattern}, {rows}" for pattern in PATTERNS for rows in ("whole", "packed and padded")]
Results = Mapping[str, Mapping[str, Mapping[str, float]]]


def results(command: str) -> Results:
    """Run the child process: results by name of the case; skips without Triton."""
    folder = environment("triton")
    if folder is None:
        pytest.skip("Triton is not installed; make test-kernels does that")
    environ = {**os.environ, "PYTHONPATH": str(folder), "TRITON_INTERPRET": str(int(command == "interpret"))}
    child = [sys.executable, "-m", "tests.trainer.model.kernels.triton_child", command]
    done = subprocess.run(child, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stdout)  # for the table of docs/benchmarks.md: pytest -s
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line.pop("name"): line for line in lines}


@pytest.fixture(scope="module")
def compiled() -> Results:
    return results("compile")


@pytest.fixture(scope="module")
def interpreted() -> Results:
    return results("interpret")


def test_every_pattern_with_a_mask_has_cases(compiled: Results, interpreted: Results) -> None:
    assert list(compiled) == list(interpreted) == CASES


@pytest.mark.parametrize("case", CASES)
def test_kernels_of_both_passes_fit_in_shared_memory(compiled: Results, case: str) -> None:
    assert list(compiled[case]) == ["forward", "backward"]
    for kernel in compiled[case].values():
        assert 0 < kernel["shared"] <= SHARED_MEMORY


@pytest.mark.parametrize("case", CASES)
def test_interpreted_kernels_equal_the_patterns_own_attention(interpreted: Results, case: str) -> None:
    biases = {"local": 1, "tglobal": 2}.get(case.split(",")[0], 0)
    assert list(interpreted[case]) == ["result", "dq", "dk", "dv", *(f"dbias{index}" for index in range(biases))]
    for name, values in interpreted[case].items():
        assert values["largest"] > 0.5, name
        unit = 1e-3 * max(1.0, values["largest"])  # of float16's last place
        rounded = 1 if name == "result" else 2  # gradients of scores are rounded to float16 within the kernel
        assert values["difference"] <= rounded * unit, name
