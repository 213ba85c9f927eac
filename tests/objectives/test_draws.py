"""Draws of span corruption, against exact distributions and numpy; normal numbers, tokens and hardest spans, by key."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET
from objectives.draws.compositions import PLACEMENTS, count_hidden_tokens, count_spans
from objectives.draws.hardest_spans import keep_hardest, rank_spans
from objectives.draws.independent import choose_tokens, cos_of_turns, draw_ids, log, normal
from objectives.span import Span
from tests.factories import make_sequences

KEY = make_key(0, "test")
ROWS = 10_000


def equal_rows(rows: int, tokens: int) -> SequenceBatch:
    """Rows of one document each that differ in their ids alone."""
    ids = np.frombuffer(np.random.default_rng(0).bytes(16 * rows), np.uint8).reshape(-1, 16)
    return replace(make_sequences([tokens]).take(np.zeros(rows, np.int64)), sequence_ids=ids)


def compositions(items: int, parts: int) -> list[tuple[int, ...]]:
    if parts == 1:
        return [(items,)]
    return [(first, *rest) for first in range(1, items - parts + 2) for rest in compositions(items - first, parts - 1)]


def hidden_rows(masks, tokens: int) -> np.ndarray:
    """``(n, tokens)`` bool, for rows of equal length."""
    rows = np.repeat(np.arange(len(masks)), masks.span_starts.lengths)
    starts = masks.span_starts.values.astype(np.int64)
    edges = np.zeros((len(masks), tokens + 1), np.int64)  # spans that touch end and begin at one edge
    np.add.at(edges, (rows, starts), 1)
    np.add.at(edges, (rows, starts + masks.span_lengths.values), -1)
    return edges.cumsum(axis=1)[:, :tokens].astype(bool)


def t5_patterns(tokens: int, noise: int, spans: int) -> Counter:
    """Every row of T5's, each once."""
    return Counter(
        tuple(flag for pair in zip(shown, hidden, strict=True) for flag in [False] * pair[0] + [True] * pair[1])
        for shown in compositions(tokens - noise, spans)
        for hidden in compositions(noise, spans)
    )


def all_rows(tokens: int, noise: int, spans: int, placement: str) -> Counter:
    """Every row of a placement, as often as it is equally likely."""
    if placement == "free":  # rows with so many hidden tokens and runs: a visible token between any two spans
        rows = [tuple(bool(number >> place & 1) for place in range(tokens)) for number in range(1 << tokens)]
        runs = {row: sum(row[place] and not (place and row[place - 1]) for place in range(tokens)) for row in rows}
        return Counter(row for row in rows if sum(row) == noise and runs[row] == spans)
    offsets = range(tokens if placement == "rolled" else 1)
    unrolled = t5_patterns(tokens, noise, spans)
    return Counter(tuple(np.roll(row, offset).tolist()) for row in unrolled for offset in offsets)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    ("tokens", "noise", "spans"), [(10, 4, 2), (12, 6, 3), (9, 2, 2), (10, 8, 1), (8, 5, 3), (2, 1, 1)]
)
def test_rows_are_uniform_over_all_of_their_placement(tokens, noise, spans, placement):
    objective = Span(density=noise / tokens, mean_span_lengths=noise / spans, placement=placement)
    masks = objective.mask(equal_rows(ROWS, tokens), KEY)
    hidden = hidden_rows(masks, tokens)
    seen, weights = Counter(map(tuple, hidden.tolist())), all_rows(tokens, noise, spans, placement)
    assert set(seen) == set(weights)
    if len(weights) > 1:
        expected = [ROWS * weight / weights.total() for weight in weights.values()]
        assert stats.chisquare([seen[row] for row in weights], expected).pvalue > 1e-4
    # A span over both ends of a rolled row is two, and no more: otherwise spans never touch.
    begins = (hidden & ~np.roll(hidden, 1, axis=1) | (np.arange(tokens) == 0) & hidden).sum(axis=1)
    assert np.array_equal(masks.span_starts.lengths, begins)


def test_rolled_rows_hide_every_place_alike():
    """Without it, a row with a single span hides its end and nothing else."""
    rows = equal_rows(20_000, 40)
    hidden = hidden_rows(Span(placement="rolled").mask(rows, KEY), 40)  # six of 40
    assert min(stats.binomtest(int(count), 20_000, 6 / 40).pvalue for count in hidden.sum(axis=0)) > 1e-4 / 40
    single = Span(density=0.1, mean_span_lengths=4)
    assert hidden_rows(single.mask(rows, KEY), 40)[:, 36:].all()
    assert hidden_rows(Span(**{**single.options, "placement": "rolled"}).mask(rows, KEY), 40).any(axis=0).all()


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=5),
    st.integers(1, 5),
    st.floats(0.01, 0.99),
    st.floats(1, 12),
    st.sampled_from(PLACEMENTS),
    st.integers(0, 2**31),
)
def test_spans_hide_t5s_number_of_tokens_and_touch_at_borders_only(lengths, documents, density, mean, placement, seed):
    batch = make_sequences(lengths, documents, seed=seed)
    masks = Span(density=density, mean_span_lengths=mean, placement=placement).mask(batch, KEY)
    for row, length in enumerate(lengths):
        starts, sizes = masks.span_starts[row].astype(int), masks.span_lengths[row].astype(int)
        stops = starts + sizes
        noise = count_hidden_tokens(np.array([length]), density)
        spans = count_spans(np.array([length]), noise, mean, placement == "free")
        assert sizes.sum() == noise[0]
        assert (masks.span_flags[row] == IN_SOURCE | IN_TARGET).all()
        if not len(starts):
            assert length < 2
            continue
        assert starts[0] >= (placement == "t5")
        assert stops[-1] <= length if placement != "t5" else stops[-1] == length
        borders = batch.document_starts[row]
        touching = stops[:-1][stops[:-1] == starts[1:]]
        # Spans touch at a border and nowhere else, and none crosses one.
        assert set(touching) <= set(borders)
        assert not any(start < border < stop for start, stop in zip(starts, stops, strict=True) for border in borders)
        wrapped = placement == "rolled" and starts[0] == 0 and stops[-1] == length
        assert len(starts) - len(touching) == spans[0] + wrapped


def numpy_spans(key: np.ndarray, tokens: int, noise: int, spans: int, placement: str) -> list[int]:
    """The same draws through numpy's own generator and a Python set: the hidden tokens, ascending."""
    rng = np.random.Generator(np.random.Philox(key=key))

    def composition(items: int, parts: int) -> np.ndarray:
        chosen: set[int] = set()
        for last in range(items - parts, items - 1):
            gap = int(rng.integers(last + 1))
            chosen.add(last if gap in chosen else gap)
        return np.diff([0, *(gap + 1 for gap in sorted(chosen)), items])

    if placement == "free":
        visible = composition(tokens - noise + 2, spans + 1) - np.eye(spans + 1, dtype=int)[[0, -1]].sum(axis=0)
    else:
        visible = composition(tokens - noise, spans)
    hidden = composition(noise, spans)
    stops = np.cumsum(visible[:spans] + hidden)
    places = np.concatenate([np.arange(stop - size, stop) for stop, size in zip(stops, hidden, strict=True)])
    offset = int(rng.integers(tokens)) if placement == "rolled" else 0
    return sorted(((places + offset) % tokens).tolist())


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(("tokens", "density", "mean"), [(2, 0.5, 1), (7, 0.4, 1), (64, 0.5, 1), (3000, 0.15, 3)])
def test_draws_are_numpys(tokens, density, mean, placement):
    rows = 1000 if tokens < 100 else 5
    batch = make_sequences([tokens] * rows, seed=tokens)
    masks = Span(density=density, mean_span_lengths=mean, placement=placement).mask(batch, KEY)
    hidden = hidden_rows(masks, tokens)
    for row, key in enumerate(id_keys(KEY, [batch.sequence_id(i) for i in range(rows)])):
        noise = count_hidden_tokens(np.array([tokens]), density)
        spans = count_spans(np.array([tokens]), noise, mean, placement == "free")
        expected = numpy_spans(key, tokens, int(noise[0]), int(spans[0]), placement)
        assert np.flatnonzero(hidden[row]).tolist() == expected


@given(st.integers(0, 50_000), st.floats(0.001, 0.999), st.floats(1, 40))
def test_counts_are_t5s_with_a_guard(tokens, density, mean):
    noise = int(count_hidden_tokens(np.array([tokens]), density)[0])
    spans = int(count_spans(np.array([tokens]), np.array([noise]), mean)[0])
    if tokens < 2:
        assert (noise, spans) == (0, 0)
    else:
        assert noise == min(max(round(tokens * density), 1), tokens - 1)
        assert spans == min(max(round(noise / mean), 1), tokens - noise)


def test_products_are_those_of_python_and_not_of_tensorflow():
    """float64, half to even; TensorFlow's float32 gives other numbers at 166 lengths below 20,000."""
    tokens = np.arange(20_000)
    noise = count_hidden_tokens(tokens, 0.15)
    single = np.rint(tokens.astype(np.float32) * np.float32(0.15))
    differ = np.flatnonzero((noise != single) & (tokens > 3))
    assert (len(differ), differ[:3].tolist()) == (166, [190, 350, 390])
    assert noise[[190, 350, 390]].tolist() == [28, 52, 58]


SHARES = st.integers(0, 2**53 - 1).map(lambda whole: whole * 2.0**-53)


def test_many_are_distributed_normally():
    assert stats.kstest(normal(np.random.Philox(1).random_raw(80_000).reshape(-1, 4)), "norm").pvalue > 0.01


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
