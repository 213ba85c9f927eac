from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.packing.mixture import Source, check_request, mix

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
