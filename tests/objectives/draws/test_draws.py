"""Normal numbers, tokens and hardest spans, drawn by key."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.draws.hardest_spans import keep_hardest, rank_spans
from objectives.draws.independent import choose_tokens, cos_of_turns, draw_ids, log, normal

SHARES = st.integers(0, 2**53 - 1).map(lambda whole: whole * 2.0**-53)


def test_many_are_distributed_normally():
    bits = np.random.Philox(1).random_raw(80_000).reshape(-1, 4)
    assert stats.kstest(normal(bits), "norm").pvalue > 0.01


def test_normal_numbers_are_box_and_mullers():
    bits = np.array([[0, 0, 0, 0], [2**64 - 1, 2**63, 0, 0], [2**63, 2**62, 0, 0]], np.uint64)
    expected = [0.0, -math.sqrt(2 * 53 * math.log(2)), 0.0]
    assert normal(bits) == pytest.approx(expected, abs=1e-12)


@given(SHARES)
def test_logarithms_and_cosines_are_those_of_the_c_library(share):
    assert log(1 - share) == pytest.approx(math.log(1 - share), rel=1e-15)
    assert cos_of_turns(share) == pytest.approx(math.cos(2 * math.pi * share), abs=2e-15)


def test_logarithms_near_the_ends():
    for x in (1.0, 1 - 2.0**-53, 1 - 2.0**-52, 2.0**-53, 2.0**-52, math.sqrt(0.5), 0.5):
        assert log(x) == pytest.approx(math.log(x), rel=1e-15)


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
    for key, size, count in zip(KEYS, SIZES, counts.tolist(), strict=True):
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


MANY = 2**62


def ragged(rows, dtype=np.int32):
    return Ragged.from_rows(rows, dtype)


def kept(lengths, losses, tokens, spans=MANY, positions=MANY):
    ones = np.ones(len(lengths), np.int64)
    found = keep_hardest(ragged(lengths), rank_spans(ragged(losses, np.float32)), tokens * ones, spans * ones,
                         positions * ones)  # fmt: skip
    return [found[row].tolist() for row in range(len(found))]


def test_the_last_span_is_cut_where_the_budget_ends():
    losses = [[1, 4, 3, 2]]
    assert kept([[5, 5, 5, 5]], losses, 12) == [[0, 5, 5, 2]]
    assert kept([[5, 5, 5, 5]], losses, 10) == [[0, 5, 5, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99) == [[5, 5, 5, 5]]
    assert kept([[5, 5, 5, 5]], losses, 0) == [[0, 0, 0, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99, spans=2) == [[0, 5, 5, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99, positions=9) == [[0, 5, 2, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99, positions=7) == [[0, 5, 0, 0]]  # a sentinel, and no token behind it


@pytest.mark.parametrize("ranks", [[0, 0, 1], [0, 1, 3], [-1, 0, 1], [2**31 - 1, 0, 1]])
def test_ranks_that_are_none_are_refused(ranks):
    """They may come from a damaged file; compiled code would write where they point."""
    many, lengths = np.full(2, MANY), ragged([[4], [4, 4, 4]])
    with pytest.raises(
        FarspanError, match=r"row 1: the ranks of its 3 spans are not 0, 1, .*; the mask set is damaged"
    ):
        keep_hardest(lengths, ragged([[0], ranks]), many, many, many)
