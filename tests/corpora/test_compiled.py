"""Kernels: compiled late, plain while there is little to do, and equal in both ways."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from corpora import keyed
from corpora.compiled import Kernel, compiled
from corpora.packing.assemble import _bounds
from corpora.packing.concatenate import greedy_parts
from corpora.storage.ragged import _copy_pieces
from corpora.text.offsets import _scan
from corpora.text.sentences import _token_starts


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


def test_plain_kernels_give_what_compiled_ones_give():
    rng = np.random.default_rng(0)
    offsets = np.append(0, np.cumsum(rng.integers(0, 30, 40)))
    starts = np.concatenate([np.sort(rng.choice(200, n, replace=False)) for n in np.diff(offsets)])
    bounds = np.append(0, np.cumsum(rng.integers(0, 5, 40)))
    boundaries = np.concatenate([np.sort(rng.choice(200, n, replace=False)) for n in np.diff(bounds)])
    text = "".join(rng.choice([*"aé漢😀 "], 300))
    characters = np.sort(rng.integers(0, 301, 50))
    documents = rng.integers(0, 40, 60)
    pieces = rng.integers(0, 5, 60)
    calls = [
        (_token_starts, starts, offsets, boundaries, bounds),
        (_scan, np.frombuffer(text.encode(), np.uint8), characters),
        (greedy_parts, rng.integers(0, 90, 40), 64, 2, True),
        (greedy_parts, rng.integers(0, 90, 40), 64, 2, False),
        (_bounds, starts.astype(np.int32), offsets, documents, rng.integers(0, 90, 60), pieces),
    ]
    for kernel, *arguments in calls:
        found, expected = kernel.function(*arguments), kernel.compiled()(*arguments)
        pairs = [(found, expected)] if isinstance(found, np.ndarray) else zip(found, expected, strict=True)
        for ours, theirs in pairs:
            assert np.array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
    source = rng.integers(0, 2**16, 500).astype(np.uint16)
    ends = np.append(0, np.cumsum(pieces))
    plain, fast = np.empty((2, ends[-1]), np.uint16)
    places = rng.integers(0, 490, 60)
    _copy_pieces.function(source, places, ends, plain)
    _copy_pieces.compiled()(source, places, ends, fast)
    assert np.array_equal(plain, fast)


def test_a_module_of_kernels_imports_no_numba():
    modules = "corpora.keyed, corpora.storage.gather, objectives.rendering.kernels"
    code = f"import sys, {modules}; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
