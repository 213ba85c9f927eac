"""Kernels: compiled late, plain while there is little to do; ``test_small_kernels`` compares the two forms."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from corpora import keyed
from corpora.compiled import Kernel, compiled
from corpora.storage.gather import Gatherable, _copy, _locate, gather
from corpora.storage.ragged import Ragged


@dataclass(frozen=True)
class Lists:
    values: Ragged


@compiled(small=True)
def doubled(values):
    return 2 * values


@compiled(small=True)
def doubled_twice(values):
    return doubled(doubled(values))


@pytest.fixture
def fresh(monkeypatch):
    """The kernels above as in a process that has just begun."""
    monkeypatch.setattr(Kernel, "plain_left", 100)
    for kernel in (doubled, doubled_twice):
        monkeypatch.setattr(kernel, "_compiled", None)
    return doubled_twice


def test_little_data_is_seen_plainly_and_much_is_compiled(fresh):
    small, large = np.arange(10), np.arange(100)
    assert np.array_equal(fresh(small), 4 * small)
    assert fresh._compiled is None
    assert np.array_equal(fresh(large), 4 * large)
    assert fresh._compiled.signatures  # so numba has compiled it, and what it calls


def test_many_small_calls_are_compiled_in_the_end(fresh):
    values = np.arange(10)
    for _ in range(20):
        assert np.array_equal(fresh(values), 4 * values)
    assert fresh._compiled.signatures


def test_a_kernel_keeps_the_name_and_docstring_of_its_function():
    assert keyed.philox_blocks.__name__ == "philox_blocks"
    assert "Salmon" in keyed.philox_blocks.__doc__


def test_plain_random_blocks_are_those_of_numpy(monkeypatch):
    monkeypatch.setattr(keyed.philox_blocks, "_compiled", None)
    monkeypatch.setattr(Kernel, "plain_left", 10**9)
    key = np.array([2**64 - 1, 2**63 + 12345], np.uint64)
    out = np.empty((5, 4), np.uint64)
    keyed.philox_blocks(key[0], key[1], np.uint64(1), out)
    assert keyed.philox_blocks._compiled is None
    assert np.array_equal(out.ravel(), np.random.Philox(key=key).random_raw(20))


@pytest.mark.parametrize("left", range(1, 60))
def test_a_plain_call_that_uses_up_the_budget_is_finished_as_plain_python(monkeypatch, left):
    """numba's own forms of reading and copying memory cannot be called from Python."""
    monkeypatch.setattr(Kernel, "plain_left", left)
    for kernel in (_locate, _copy):
        monkeypatch.setattr(kernel, "_compiled", None)
    block = Gatherable.of(Lists(Ragged.from_rows([[1, 2], [3]], np.uint16)))
    assert gather([block], np.zeros(3, np.int64), np.array([1, 0, 1])).values.values.tolist() == [3, 1, 2, 3]


def test_a_module_of_kernels_imports_no_numba():
    modules = "corpora.keyed, corpora.storage.gather, objectives.rendering.kernels"
    code = f"import sys, {modules}; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
