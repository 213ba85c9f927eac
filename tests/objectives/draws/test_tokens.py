"""Draws for single tokens against numpy's own generator."""

import numpy as np
import pytest

from objectives.draws.tokens import choose_tokens, draw_ids

SIZES = np.array([0, 1, 7, 8, 511, 512, 513, 3000])
KEYS = np.random.default_rng(0).integers(0, 2**64, (len(SIZES), 2), np.uint64)
KEYS.flags.writeable = False  # as keys of ids are: the kernels are compiled for those


@pytest.mark.parametrize("bounds", [[2**31], [0, 2**30, 2**30, 3 * 2**30], [2**32], [5, 6]])
def test_tokens_are_chosen_by_numpys_numbers(bounds):
    bounds = np.array(bounds, np.uint64)
    places, kinds = np.empty(SIZES.sum() + 1, np.int32), np.empty(SIZES.sum() + 1, np.uint8)
    counts = np.empty(len(SIZES), np.int64)
    choose_tokens(KEYS, SIZES, bounds, places, kinds, counts)
    at = 0
    for key, size, count in zip(KEYS, SIZES, counts, strict=True):
        rng = np.random.Generator(np.random.Philox(key=key))
        numbers = rng.integers(2**32, size=size, dtype=np.uint32).astype(np.uint64)
        reached = np.searchsorted(bounds, numbers, side="right")
        chosen = np.flatnonzero(reached < len(bounds))
        assert places[at : at + count].tolist() == chosen.tolist()
        assert kinds[at : at + count].tolist() == reached[chosen].tolist()
        at += count


def test_ids_are_remainders_of_numpys_numbers():
    ids = np.arange(100, 1100, 7, dtype=np.int32)
    out = np.empty(SIZES.sum(), np.int32)
    draw_ids(KEYS, SIZES, ids, out)
    at = 0
    for key, size in zip(KEYS, SIZES, strict=True):
        numbers = np.random.Philox(key=key).random_raw(size)
        assert out[at : at + size].tolist() == ids[numbers % np.uint64(len(ids))].tolist()
        at += size
