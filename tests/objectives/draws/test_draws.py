"""Normal numbers, tokens and hardest spans, drawn by key."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.errors import FarspanError
from corpora.storage.ragged import Ragged
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET
from objectives.draws.hardest_spans import (
    Candidates,
    hide_hardest,
    keep_hardest,
    rank_spans,
    span_losses,
    whole_candidates,
)
from objectives.draws.independent import choose_tokens, cos_of_turns, draw_ids, log, normal
from tests.objectives.plain_model_based import aggregate, choose

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
rows_of_lengths = st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=1, max_size=5)


def ragged(rows, dtype=np.int32):
    return Ragged.from_rows(rows, dtype)


def kept(lengths, losses, tokens, spans=MANY, positions=MANY):
    ones = np.ones(len(lengths), np.int64)
    found = keep_hardest(ragged(lengths), rank_spans(ragged(losses, np.float32)), tokens * ones, spans * ones,
                         positions * ones)  # fmt: skip
    return [found[row].tolist() for row in range(len(found))]


@given(rows_of_lengths, st.sampled_from(["mean", "sum", "max"]), st.integers(0, 2**31))
def test_a_spans_loss_is_that_of_its_own_tokens(rows, aggregation, seed):
    lengths = ragged(rows)
    tokens = np.random.default_rng(seed).integers(0, 100, int(lengths.values.sum())).astype(np.float32) / 8
    found = span_losses(tokens, lengths, aggregation)
    assert found.values.dtype == np.float32
    position = 0
    for row, sizes in enumerate(rows):
        for span, size in enumerate(sizes):
            expected = aggregate(tokens[position : position + size].tolist(), aggregation)
            assert found[row][span] == np.float32(expected)
            position += size


def test_sums_keep_what_float32_would_drop():
    tokens = np.array([2.0**25, 1, 1, 1, 1], np.float32)
    assert span_losses(tokens, ragged([[5]]), "sum").values[0] == 2**25 + 4


def test_equal_losses_rank_from_left_to_right():
    losses = ragged([[1, 3, 3, 2, 3], [], [0, 0], [5]], np.float32)
    ranks = rank_spans(losses)
    assert [ranks[row].tolist() for row in range(4)] == [[4, 0, 1, 3, 2], [], [0, 1], [0]]
    assert ranks.values.dtype == np.int32


def test_the_last_span_is_cut_where_the_budget_ends():
    losses = [[1, 4, 3, 2]]
    assert kept([[5, 5, 5, 5]], losses, 12) == [[0, 5, 5, 2]]
    assert kept([[5, 5, 5, 5]], losses, 10) == [[0, 5, 5, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99) == [[5, 5, 5, 5]]
    assert kept([[5, 5, 5, 5]], losses, 0) == [[0, 0, 0, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99, spans=2) == [[0, 5, 5, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99, positions=9) == [[0, 5, 2, 0]]
    assert kept([[5, 5, 5, 5]], losses, 99, positions=7) == [[0, 5, 0, 0]]  # a sentinel, and no token behind it


def test_a_row_does_not_know_the_rows_beside_it():
    """The published code takes as many spans of every row as a fifth of the fewest that a row of the batch has."""
    long, short = [3] * 50, [3]
    alone = kept([long], [list(range(50))], 30)
    assert kept([long, short], [list(range(50)), [1]], 30)[0] == alone[0]
    assert sum(alone[0]) == 30


@given(rows_of_lengths, st.integers(0, 60), st.integers(0, 14), st.integers(0, 60), st.integers(0, 2**31))
def test_budgets_hold_to_the_token(rows, tokens, spans, positions, seed):
    rng = np.random.default_rng(seed)
    losses = [rng.integers(0, 5, len(row)).tolist() for row in rows]
    for sizes, hard, found in zip(rows, losses, kept(rows, losses, tokens, spans, positions), strict=True):
        starts = np.cumsum([0, *sizes])[:-1].tolist()
        chosen = choose(list(zip(starts, sizes, strict=True)), hard, tokens, spans, positions)
        expected = dict.fromkeys(starts, 0) | {start: size for start, size, hidden, *_ in chosen if hidden}
        assert found == list(expected.values())
        if min(spans, positions) >= 100:
            assert sum(found) == min(tokens, sum(sizes))


def test_columns_of_unequal_rows_are_refused():
    with pytest.raises(ValueError, match="rows of different lengths"):
        keep_hardest(ragged([[1, 2]]), ragged([[0]]), np.ones(1, int), np.ones(1, int), np.ones(1, int))


@pytest.mark.parametrize("ranks", [[0, 0, 1], [0, 1, 3], [-1, 0, 1], [2**31 - 1, 0, 1]])
def test_ranks_that_are_none_are_refused(ranks):
    """They may come from a damaged file; compiled code would write where they point."""
    many, lengths = np.full(2, MANY), ragged([[4], [4, 4, 4]])
    with pytest.raises(
        FarspanError, match=r"row 1: the ranks of its 3 spans are not 0, 1, .*; the mask set is damaged"
    ):
        keep_hardest(lengths, ragged([[0], ranks]), many, many, many)


HIDDEN = IN_SOURCE | IN_TARGET


def candidates(rows):
    """Spans of the given lengths with a visible token before each; their losses are a permutation."""
    starts = [np.cumsum([0, *sizes[:-1]]) + np.arange(1, len(sizes) + 1) if sizes else [] for sizes in rows]
    losses = [np.random.default_rng(len(sizes)).permutation(len(sizes)) for sizes in rows]
    scores = Ragged.from_rows(losses, np.float32)
    return Candidates(Ragged.from_rows(starts, np.int32), Ragged.from_rows(rows, np.int32), scores, rank_spans(scores))


def hidden(found, tokens):
    count = len(found.starts)
    many = np.full(count, 2**62)
    ids = np.arange(16 * count, dtype=np.uint8).reshape(count, 16)
    return hide_hardest(ids, found, np.full(count, tokens, np.int64), many, many)


def test_a_candidate_that_is_cut_becomes_two_spans_of_one_rank():
    scores = Ragged.from_rows([[1, 2]], np.float32)
    found = Candidates(
        Ragged.from_rows([[3, 9]], np.int32), Ragged.from_rows([[4, 5]], np.int32), scores, rank_spans(scores)
    )
    masks = hidden(found, 7)
    assert masks.span_starts[0].tolist() == [3, 5, 9]
    assert masks.span_lengths[0].tolist() == [2, 2, 5]
    assert masks.span_flags[0].tolist() == [HIDDEN, CANDIDATE, HIDDEN]
    assert masks.span_ranks[0].tolist() == [1, 1, 0]


@given(st.lists(st.lists(st.integers(1, 6), max_size=6), min_size=1, max_size=4), st.integers(0, 30))
def test_all_candidates_come_back_whole(rows, tokens):
    found = candidates(rows)
    masks = hidden(found, tokens)
    for row, sizes in enumerate(rows):
        hides = masks.span_flags[row] == HIDDEN
        assert masks.span_lengths[row][hides].sum() == min(tokens, sum(sizes))
    again = whole_candidates(masks)
    for column, other in zip(found, again, strict=True):
        assert [column[row].tolist() for row in range(len(rows))] == [other[row].tolist() for row in range(len(rows))]
