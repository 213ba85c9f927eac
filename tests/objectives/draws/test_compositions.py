"""Places of the spans of span corruption: exact distributions of every placement, and numpy's own draws."""

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.keyed import id_keys, make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api.masks import IN_SOURCE, IN_TARGET
from objectives.draws.compositions import PLACEMENTS, noise_counts, span_counts
from objectives.span import Span
from tests.factories import make_sequences

KEY = make_key(0, "test")
ROWS = 10_000


def equal_rows(rows: int, tokens: int) -> SequenceBatch:
    """Rows of one document each that differ in their ids alone, made without a loop over them."""
    one = make_sequences([tokens])
    columns = {f.name: getattr(one, f.name) for f in fields(one)}
    repeated = {
        name: Ragged.from_lengths(np.tile(column.values, rows), np.tile(column.lengths, rows))
        for name, column in columns.items()
        if isinstance(column, Ragged)
    }
    return replace(
        one,
        **repeated,
        sequence_ids=np.frombuffer(np.random.default_rng(0).bytes(16 * rows), np.uint8).reshape(-1, 16),
        document_ids=pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32), list(map(str, range(rows)))),
        cluster_ids=np.repeat(one.cluster_ids, rows),
    )


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
    rows = t5_patterns(tokens, noise, spans)
    return Counter(tuple(np.roll(row, offset).tolist()) for row in rows for offset in offsets)


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
        noise = noise_counts(np.array([length]), density)
        spans = span_counts(np.array([length]), noise, mean, placement == "free")
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
        noise = noise_counts(np.array([tokens]), density)
        spans = span_counts(np.array([tokens]), noise, mean, placement == "free")
        expected = numpy_spans(key, tokens, int(noise[0]), int(spans[0]), placement)
        assert np.flatnonzero(hidden[row]).tolist() == expected


@given(st.integers(0, 50_000), st.floats(0.001, 0.999), st.floats(1, 40))
def test_counts_are_t5s_with_a_guard(tokens, density, mean):
    noise = int(noise_counts(np.array([tokens]), density)[0])
    spans = int(span_counts(np.array([tokens]), np.array([noise]), mean)[0])
    if tokens < 2:
        assert (noise, spans) == (0, 0)
    else:
        assert noise == min(max(round(tokens * density), 1), tokens - 1)
        assert spans == min(max(round(noise / mean), 1), tokens - noise)


def test_products_are_those_of_python_and_not_of_tensorflow():
    """float64, half to even; TensorFlow's float32 gives other numbers at 166 lengths below 20,000."""
    tokens = np.arange(20_000)
    noise = noise_counts(tokens, 0.15)
    single = np.rint(tokens.astype(np.float32) * np.float32(0.15))
    differ = np.flatnonzero((noise != single) & (tokens > 3))
    assert (len(differ), differ[:3].tolist()) == (166, [190, 350, 390])
    assert noise[[190, 350, 390]].tolist() == [28, 52, 58]
