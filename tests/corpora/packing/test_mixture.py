"""Mixtures of sources, and windows of their documents."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.keyed import id_keys, make_key
from corpora.packing.assemble import assemble_cuts
from corpora.packing.mixture import Source, check_request, mix
from corpora.packing.options import Packing
from corpora.packing.windows import Windows, arrange, take
from corpora.storage.ragged import Ragged

names = st.sampled_from(["books", "news", "films", "talk"])
sizes = st.dictionaries(names, st.integers(1_000, 10**12), min_size=1)


@st.composite
def mixtures(draw):
    """Sources with weights and caps."""
    available = draw(sizes)
    raw = {name: draw(st.floats(0.01, 1)) for name in available}
    total = math.fsum(raw.values())
    return {
        name: Source(tokens, raw[name] / total, draw(st.sampled_from([0.5, 1.0, 1.7, 4.0])))
        for name, tokens in available.items()
    }


def cap(source):
    return Fraction(str(source.epochs)) * source.available


@given(mixtures(), st.one_of(st.none(), st.integers(100_000, 10**12)))
def test_stopping_keeps_the_proportions_within_a_token_and_every_cap(sources, tokens):
    largest = min(float(cap(source)) / source.weight for source in sources.values())
    total = min(float(tokens or math.inf), largest)
    assume(all(total * source.weight > 2 for source in sources.values()))
    made = mix(sources, tokens)
    for name, share in made.shares.items():
        assert share.tokens <= cap(sources[name])
        assert share.tokens == pytest.approx(total * sources[name].weight, abs=1.01, rel=1e-9)
        assert share.epochs * share.available == share.tokens
    assert bool(made.reason) == (tokens is not None and made.tokens < tokens - len(sources))
    if tokens is None:
        assert any(
            share.capped and share.tokens == math.floor(cap(sources[name])) for name, share in made.shares.items()
        )


@given(mixtures(), st.integers(100_000, 10**12))
def test_redistribution_spends_the_budget_or_reaches_every_cap(sources, tokens):
    made = mix(sources, tokens, on_cap="redistribute")
    caps = {name: math.floor(cap(source)) for name, source in sources.items()}
    assert all(share.tokens <= caps[name] for name, share in made.shares.items())
    assert min(tokens, sum(caps.values())) - len(sources) <= made.tokens <= tokens
    free = [name for name, share in made.shares.items() if not share.capped]
    for one in free:  # below their caps the weights still decide
        for other in free:
            ratio = float(made.shares[one].weight / made.shares[other].weight)
            assert made.shares[one].tokens == pytest.approx(made.shares[other].tokens * ratio, abs=2 + 2 * ratio)
    assert bool(made.reason) == any(share.capped for share in made.shares.values())


@given(sizes)
def test_temperature_goes_from_sizes_to_equality(available):
    sources = {name: Source(tokens) for name, tokens in available.items()}
    whole = sum(available.values())
    by_size = mix(sources)
    assert {name: share.tokens for name, share in by_size.shares.items()} == available
    for name, share in mix(sources, temperature=1.0).shares.items():
        assert float(share.weight) == pytest.approx(available[name] / whole)
    assert {share.weight for share in mix(sources, temperature=math.inf).shares.values()} == {Fraction(1, len(sources))}


def test_temperature_two_is_the_square_root():
    shares = mix({"a": Source(10_000), "b": Source(1_000_000)}, 1_100, temperature=2.0).shares
    assert {name: share.tokens for name, share in shares.items()} == pytest.approx({"a": 100, "b": 1_000}, abs=1)


def test_a_weight_is_the_number_that_was_written():
    shares = mix({"a": Source(10**9, 0.6, 0.7), "b": Source(10**9, 0.3), "c": Source(10**9, 0.1)}, 10**9).shares
    assert [share.tokens for share in shares.values()] == [600_000_000, 300_000_000, 100_000_000]


def test_the_reason_names_the_source_that_ended_the_mixture():
    sources = {"books": Source(1_000, 0.5, 2.0), "news": Source(100_000, 0.5)}
    made = mix(sources, 10_000)
    assert {name: share.tokens for name, share in made.shares.items()} == {"books": 2_000, "news": 2_000}
    assert "4,000 of 10,000 tokens: 'books' (weight 0.5) has been read 2 times" in made.reason
    spread = mix(sources, 10_000, on_cap="redistribute")
    assert {name: share.tokens for name, share in spread.shares.items()} == {"books": 2_000, "news": 8_000}
    assert "'books' (weight 0.5) is at the cap of 2 epochs; the other sources make up" in spread.reason
    everything = mix(sources, 10**9, on_cap="redistribute")
    assert everything.tokens == 102_000
    assert "102,000 of 1,000,000,000 tokens: all sources are at the cap" in everything.reason


@pytest.mark.parametrize(
    ("sources", "options", "message"),
    [
        ({}, {}, "no source"),
        ({"a": Source(10, 0.6), "b": Source(10, 0.6)}, {}, r"sum to 1\.2, not to 1; normalised they are a = 0\.5, b"),
        ({"a": Source(10, 1.0), "b": Source(10)}, {}, "'b' has no weight"),
        ({"a": Source(10, 1.5), "b": Source(10, -0.5)}, {}, r"'b': weight -0\.5"),
        ({"a": Source(10, math.nan)}, {}, "weight nan"),
        ({"a": Source(10, 1.0)}, {"temperature": 2.0}, "give one or the other"),
        ({"a": Source(10)}, {"temperature": 0.0}, r"temperature 0\.0: must be above 0"),
        ({"a": Source(10)}, {"temperature": math.nan}, "temperature nan: must be above 0"),
        ({"a": Source(1), "b": Source(10**9)}, {"temperature": 0.001}, "so low that sources get nothing"),
        ({"a": Source(10, epochs=-1)}, {}, "'a': epochs -1"),
        ({"a": Source(10, epochs=math.inf)}, {}, "epochs inf"),
        ({"a": Source(0)}, {}, "'a' has no token"),
        ({"a": Source(10)}, {"tokens": 0}, "tokens 0: give a positive budget"),
        ({"a": Source(10)}, {"on_cap": "wait"}, "'wait': choose one of stop, redistribute"),
        ({"a": Source(10)}, {"on_cap": "redistribute"}, "without a budget"),
        ({"a": Source(10, 0.999999), "b": Source(10, 0.000001)}, {}, "'b': its share 1e-06.*less than one token"),
    ],
)
def test_what_cannot_be_mixed_is_refused(sources, options, message):
    with pytest.raises(FarspanError, match=message):
        mix(sources, **options)


@given(sizes, st.data())
def test_what_is_wrong_at_every_size_is_refused_before_sizes_are_known(available, data):
    weights = {name: data.draw(st.sampled_from([None, 1 / len(available), 0.7, -0.5])) for name in available}
    epochs = {name: data.draw(st.sampled_from([1.0, 0.5, 0.0, math.nan])) for name in available}
    asked = data.draw(st.tuples(st.sampled_from([None, 10**4, -5]), st.sampled_from([None, 2.0, -1.0])))
    on_cap = data.draw(st.sampled_from(["stop", "redistribute"]))
    sources = {name: Source(tokens, weights[name], epochs[name]) for name, tokens in available.items()}
    early = refusal(check_request, weights, epochs, *asked, on_cap)
    late = refusal(mix, sources, *asked, on_cap)
    assert early == late or "less than one token" in late


def refusal(function, *arguments):
    """The refusal of the arguments; empty if they are taken."""
    try:
        function(*arguments)
    except FarspanError as error:
        return str(error)
    return ""


windows = st.integers(1, 20).flatmap(lambda size: st.builds(Windows, st.just(size), st.integers(1, size)))


@given(st.lists(st.integers(0, 70), max_size=20), windows)
def test_windows_cover_every_token_at_their_stride(sizes, windows):
    documents, offsets, pieces = windows.cut(np.array(sizes, np.int64))
    written = windows.written(np.array(sizes, np.int64))
    for document, size in enumerate(sizes):
        own = documents == document
        assert written[document] == pieces[own].sum()
        if not size:
            assert not own.any()
            continue
        assert (np.diff(offsets[own]) == windows.stride).all()
        assert (pieces[own][:-1] == windows.size).all()
        assert 1 <= pieces[own][-1] <= windows.size
        assert offsets[own][-1] + pieces[own][-1] == size
        # no window lies inside of the one before
        assert (np.diff(offsets[own] + pieces[own]) > 0).all()


@given(st.integers(0, 300), windows)
def test_a_beginning_is_the_longest_whose_windows_hold_no_more(written, windows):
    every = np.arange(302)  # of so many tokens: no window writes less than it covers
    size = int(windows.beginning(np.array([written]))[0])
    assert size == np.flatnonzero(windows.written(every) <= written)[-1]
    assert written - windows.overlap <= windows.written(np.array([size]))[0] <= written


def test_a_window_that_fits_exactly_leaves_no_rest():
    documents, offsets, sizes = Windows(10, 10).cut(np.array([20, 21, 9]))
    assert documents.tolist() == [0, 0, 1, 1, 1, 2]
    assert offsets.tolist() == [0, 10, 0, 10, 20, 0]
    assert sizes.tolist() == [10, 10, 10, 10, 1, 9]
    assert Windows(10, 4).written(np.array([9, 10, 11, 14, 15])).tolist() == [9, 10, 17, 20, 27]


def keys_of(rows):
    ids = [f"d{i}" for i in rows]
    return lambda number: id_keys(make_key(0, "pass", {"pass": number}), ids)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 2)), max_size=40),
    st.lists(st.fractions(Fraction(1, 10**6), 4), min_size=3, max_size=3),
    windows,
)
def test_each_source_gives_its_passes_to_the_token(documents, epochs, windows):
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(range(len(documents))), windows)
    written = windows.written(taken.sizes)
    assert (np.diff(taken.passes) >= 0).all()
    for source, passes in enumerate(epochs):
        own = sources[taken.documents] == source
        target = math.floor(passes * int(windows.written(lengths[sources == source]).sum()))
        assert target - windows.overlap <= written[own].sum() <= target
        for number in range(math.ceil(passes)):
            now = own & (taken.passes == number)
            found = taken.documents[now]
            assert len(np.unique(found)) == len(found)
            if number + 1 <= passes:
                assert set(found) == set(np.flatnonzero(sources == source))
            # all but the last one are whole, and that one is cut at its end
            assert (taken.sizes[now][:-1] == lengths[found][:-1]).all()
            assert (taken.sizes[now] <= lengths[found]).all()


@given(mixtures(), st.integers(1, 4), st.integers(0, 2**31), windows)
def test_shards_that_know_nothing_of_each_other_make_the_mixture_together(sources, shards, seed, windows):
    rng = np.random.default_rng(seed)
    names = sorted(sources)
    source = rng.integers(0, len(names), 60)
    lengths = rng.integers(1, 50, 60)
    lengths[rng.integers(0, 60)] = 5_000  # longer than any sequence
    here = {name: int(windows.written(lengths[source == number]).sum()) for number, name in enumerate(names)}
    assume(min(here.values()) > 0)
    made = mix({name: replace(sources[name], available=here[name]) for name in names})
    epochs = [made.shares[name].epochs for name in names]
    shard = rng.integers(0, shards, 60)
    tokens = np.zeros(len(names), np.int64)
    for number in range(shards):
        own = np.flatnonzero(shard == number)
        taken = take(lengths[own], source[own], epochs, keys_of(own), windows)
        np.add.at(tokens, source[own][taken.documents], windows.written(taken.sizes))
    for name, realised in zip(names, tokens, strict=True):
        assert made.shares[name].tokens - shards * (1 + windows.overlap) < realised <= made.shares[name].tokens


def test_each_pass_has_an_order_of_its_own_and_a_part_of_one_follows_it():
    lengths, sources = np.full(50, 10), np.zeros(50, np.int64)
    taken = take(lengths, sources, [Fraction(5, 2)], keys_of(range(50)), Windows(20, 20))
    first, second, third = (taken.documents[taken.passes == number].tolist() for number in range(3))
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    whole = take(lengths, sources, [Fraction(3)], keys_of(range(50)), Windows(20, 20))
    assert third == whole.documents[whole.passes == 2][:25].tolist()


shards = st.lists(st.tuples(st.integers(1, 90), st.integers(0, 2)), max_size=30)
passes = st.lists(st.fractions(Fraction(1, 100), 3), min_size=3, max_size=3)
packings = st.builds(
    Packing,
    sequence_length=st.integers(12, 40),
    room_per_sequence=st.integers(0, 2),
    room_per_document=st.integers(0, 2),
)


@given(shards, passes, packings, st.booleans(), st.data())
def test_rows_hold_what_is_taken_and_nothing_else(documents, epochs, packing, across, data):
    stride = data.draw(st.integers(0, packing.capacity - packing.room_per_document))
    windows = Windows.of(packing, stride)
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(range(len(documents))), windows)
    cuts = arrange(taken, sources, packing, windows, across)

    seen = {}  # (pass, document) -> how often each of its tokens lies in a row
    for document, offset, size, number in zip(cuts.documents, cuts.offsets, cuts.sizes, cuts.uses, strict=True):
        assert size > 0
        tokens = seen.setdefault((number, document), np.zeros(lengths[document], np.int64))
        tokens[offset : offset + size] += 1
    wanted = {}
    for which, offset, size in zip(*windows.cut(taken.sizes), strict=True):
        name = (taken.passes[which], taken.documents[which])
        wanted.setdefault(name, np.zeros(lengths[name[1]], np.int64))[offset : offset + size] += 1
    assert seen.keys() == wanted.keys()
    assert all(np.array_equal(seen[name], wanted[name]) for name in seen)
    for (number, document), times in wanted.items():  # what is taken is a beginning, without a gap
        taken_size = taken.sizes[(taken.passes == number) & (taken.documents == document)][0]
        assert (times[:taken_size] > 0).all()
        assert not times[taken_size:].any()

    assert (np.diff(cuts.row_offsets) > 0).all()
    for first, last in zip(cuts.row_offsets[:-1], cuts.row_offsets[1:], strict=True):
        row = slice(first, last)
        assert cuts.sizes[row].sum() + (last - first) * packing.room_per_document <= packing.capacity
        assert len(set(cuts.uses[row])) == 1
        if not across:
            assert len(set(sources[cuts.documents[row]])) == 1
        if not stride:
            assert len(set(cuts.documents[row])) == last - first


@given(shards, passes, packings)
def test_rows_are_full_but_for_the_last_of_each_source_and_pass(documents, epochs, packing):
    lengths = np.array([length for length, _ in documents], np.int64)
    sources = np.array([source for _, source in documents], np.int64)
    taken = take(lengths, sources, epochs, keys_of(range(len(documents))), Windows.of(packing))
    for across in (False, True):
        cuts = arrange(taken, sources, packing, Windows.of(packing), across)
        tokens = np.add.reduceat(cuts.sizes, cuts.row_offsets[:-1]) if len(cuts.sizes) else np.empty(0)
        parts = np.diff(cuts.row_offsets)
        open_rows = tokens + (parts + 1) * packing.room_per_document < packing.capacity
        groups = {
            (number, not across and sources[document])
            for number, document in zip(taken.passes, taken.documents, strict=True)
        }
        assert open_rows.sum() <= len(groups)


def test_a_row_of_several_passes_has_an_id_of_its_own_in_each():
    lengths, sources = np.array([30, 5]), np.zeros(2, np.int64)
    packing = Packing(sequence_length=12, room_per_sequence=2, room_per_document=0)
    taken = take(lengths, sources, [Fraction(3)], keys_of(range(2)), Windows.of(packing))
    cuts = arrange(taken, sources, packing, Windows.of(packing))
    tokens = Ragged.from_lengths(np.arange(35, dtype=np.uint16), lengths)
    rows = assemble_cuts(pa.array(["a", "b"]), tokens, Ragged.from_rows([[0, 7], [0]], np.int32), cuts)
    assert len(rows) == 12
    assert len({rows.sequence_id(row) for row in range(len(rows))}) == 12
    order = np.arange(len(rows))[::-1]
    turned = assemble_cuts(pa.array(["a", "b"]), tokens, Ragged.from_rows([[0, 7], [0]], np.int32), cuts.take(order))
    assert [turned.sequence_id(row) for row in order] == [rows.sequence_id(row) for row in range(len(rows))]


def test_a_stride_that_would_leave_gaps_is_refused():
    assert Windows.of(Packing(sequence_length=16), 13) == Windows.of(Packing(sequence_length=16)) == Windows(13, 13)
    for stride in (-1, 14):
        with pytest.raises(FarspanError, match=rf"stride {stride}: give 0 \(no overlap\) or up to 13"):
            Windows.of(Packing(sequence_length=16), stride)
