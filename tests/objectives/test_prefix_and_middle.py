"""Prefix language modelling and fill in the middle: pivots, cuts, published orders, and sentinels of the tokenizer."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.masks import IN_SOURCE
from objectives.api.protocol import CorpusFacts, Tools, load_objective
from objectives.fill_in_the_middle import FillInTheMiddle
from objectives.prefix_lm import PrefixLm
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.objectives.handmade import Characters, rows
from tests.toy_tools import TOOLS

KEY = make_key(0, "test")
LIKELY = 1e-4  # chance that a test of right code, run with another seed, would fail
FACTS = CorpusFacts(VOCAB, OWNED, 5000, 4000, 8, room_per_sequence=3)
SENTINELS = {"<fim_prefix>": 31_990, "<fim_suffix>": 31_991, "<fim_middle>": 31_992}


def fim(**options) -> FillInTheMiddle:
    return FillInTheMiddle(append=True, **options).with_tools(TOOLS)


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({}, 0, 39),
        ({"density": 0.25}, 20, 39),  # round(0.5 * 39) is 20, half to even
        ({"density": 0.1}, 31, 39),
        ({"pivot": "uniform"}, 1, 39),
        ({"pivot": "last", "density": 0.25}, 30, 30),
        ({"pivot": "last", "density": 0.15}, 34, 34),
        ({"pivot": "uniform", "target_length": 11, "fit": "window"}, 30, 39),
        ({"pivot": "last", "density": 0.5, "target_length": 11, "fit": "window"}, 30, 30),
    ],
    ids=str,
)
def test_pivots_are_even_between_the_published_bounds(options, first, last):
    masks = PrefixLm(**options).mask(make_sequences([40] * 4000), KEY)
    assert masks.span_starts.lengths.tolist() == [1] * 4000
    pivots = masks.span_starts.values
    assert (pivots + masks.span_lengths.values == 40).all()
    assert (pivots.min(), pivots.max()) == (first, last)
    frequency = np.bincount(pivots - first)
    assert first == last or stats.chisquare(frequency).pvalue > LIKELY
    assert PrefixLm(**options).longest(make_sequences([40]))[1][0] == 40 - first + 1


@given(batch=sequence_batches(min_rows=1), sentinel=st.booleans())
def test_a_source_is_the_beginning_of_its_row_and_a_target_the_rest(batch, sentinel):
    objective = PrefixLm("uniform", sentinel=sentinel)
    special = objective.validate(FACTS)
    masks = objective.mask(batch, KEY)
    examples = objective.render(batch, masks, special)
    marker = special.sentinels.tolist()
    for row in range(len(batch)):
        source = examples.source_ids[row, : examples.source_lengths[row]].tolist()
        target = examples.target_ids[row, : examples.target_lengths[row]].tolist()
        assert source[-1] == special["<eos>"]
        text = batch.tokens[row].tolist()
        if len(text) < 2:
            assert (source[:-1], target) == (text, [])
            continue
        pivot = int(masks.span_starts[row][0])
        assert source[:-1] == text[:pivot] + marker
        assert target == [*marker, *text[pivot:], special["<eos>"]]


def test_too_long_targets_of_prefixes_are_refused_with_the_numbers():
    with pytest.raises(FarspanError, match="target_length is 512, but a row of 4000 tokens may need 4001"):
        PrefixLm(target_length=512).validate(FACTS)
    PrefixLm(target_length=512, fit="window").validate(FACTS)
    with pytest.raises(FarspanError, match=r"density is 0.6; give .* up to 0.5 with pivot t5"):
        PrefixLm(density=0.6)


def test_cuts_are_uniform_in_characters():
    """Tokens of 1 and of 39 characters: a cut falls on the token after it, by characters and not by tokens."""

    class Uneven(Characters):
        owned_tokens, vocab_size = OWNED, VOCAB

        def decode_with_offsets(self, ids):
            sizes = np.where(np.arange(len(ids)) % 2, 39, 1)
            return "x" * int(sizes.sum()), np.cumsum(sizes) - sizes

    objective = FillInTheMiddle(rate=1, append=True).with_tools(Tools(Uneven()))
    count, tokens = 6000, 50
    masks = objective.mask(make_sequences([tokens] * count), KEY)
    ends = masks.span_starts.values + masks.span_lengths.values
    edges = np.append(np.cumsum(np.where(np.arange(tokens) % 2, 39, 1)) - np.where(np.arange(tokens) % 2, 39, 1), 1000)
    grid = np.searchsorted(edges, np.arange(1001))  # the token boundary of each cut
    # The later of two uniform cuts is at c with weight 2 c + 1; a middle without tokens takes the next one.
    weights = np.zeros((tokens + 1, tokens + 1))
    chances = np.bincount(grid, minlength=tokens + 1) / 1001
    for low in range(tokens + 1):
        for high in range(low, tokens + 1):
            pair = chances[low] * chances[high] * (1 if low == high else 2)
            weights[low, high] += pair
    expected = np.zeros(tokens + 1)
    for low in range(tokens + 1):
        for high in range(low, tokens + 1):
            expected[min(high + (low == high), tokens)] += weights[low, high]
    seen = np.bincount(ends, minlength=tokens + 1)
    some = expected * count > 5
    pooled = [*seen[some], seen[~some].sum()], [*expected[some] * count, expected[~some].sum() * count]
    assert stats.chisquare(*pooled).pvalue > LIKELY


def test_rates_and_orders_are_chances():
    masks = fim(rate=0.7, spm=0.25).mask(make_sequences([64] * 4000), KEY)
    hidden = np.add.reduceat(masks.span_lengths.values, masks.span_lengths.offsets[:-1])
    marked = masks.span_flags.values & IN_SOURCE != 0
    drawn = Counter(zip((hidden == 64).tolist(), marked.tolist(), strict=True))
    assert stats.binomtest(drawn[True, False], 4000, 0.3).pvalue > LIKELY
    assert stats.binomtest(drawn[False, False], 2800, 0.25).pvalue > LIKELY
    cut = hidden[hidden < 64]
    assert abs(cut.mean() / 64 - 1 / 3) < 0.02  # the published mean middle


@pytest.mark.parametrize(
    ("options", "order"),
    [({"spm": 0}, "PpSsM"), ({"spm": 1}, "PSsMp"), ({"spm": 1, "spm_variant": 1}, "SsPpM")],
    ids=str,
)
def test_source_and_target_are_the_published_order(options, order):
    objective = fim(rate=1, **options)
    special = objective.validate(FACTS)
    batch = make_sequences([60] * 40)
    masks = objective.mask(batch, KEY)
    examples = objective.render(batch, masks, special)
    for row in range(40):
        start, size = int(masks.span_starts[row][0]), int(masks.span_lengths[row][0])
        text = batch.tokens[row].tolist()
        pieces = {
            name: [special[f"<fim_{full}>"]] for name, full in (("P", "prefix"), ("S", "suffix"), ("M", "middle"))
        }
        pieces |= {"p": text[:start], "s": text[start + size :]}
        stream = [*examples.source_ids[row, : examples.source_lengths[row]]]
        stream += [*examples.target_ids[row, : examples.target_lengths[row]]]
        wanted = [token for name in order for token in pieces[name]] + text[start : start + size] + [special["<eos>"]]
        if size < 60:
            assert stream == wanted


def test_one_document_is_cut_and_the_others_precede_it():
    objective = fim(rate=1, spm=0)
    special = objective.validate(FACTS)
    batch = make_sequences([90] * 50, [[0, 30, 50]] * 50)
    masks = objective.mask(batch, KEY)
    examples = objective.render(batch, masks, special, segment_ids=True)
    cut = Counter()
    for row in range(50):
        edges = [0, 30, 50, 90]
        document = int(np.searchsorted(edges, masks.span_starts[row][0], "right")) - 1
        cut[document] += 1
        first = [part for part in range(3) if part != document]
        text, eos = batch.tokens[row].tolist(), special["<eos>"]
        before = [token for part in first for token in (*text[edges[part] : edges[part + 1]], eos)]
        source = examples.source_ids[row].tolist()
        assert source[: len(before) + 1] == [*before, special["<fim_prefix>"]]
        segments = examples.segment_ids[row, : examples.source_lengths[row]].tolist()
        assert list(dict.fromkeys(segments)) == [*first, document]
    assert cut[2] > cut[1]
    assert stats.chisquare([cut[part] for part in range(3)], [50 / 3, 100 / 9, 200 / 9]).pvalue > LIKELY


def test_a_budget_shortens_middles_at_their_beginning_and_cuts_long_rows():
    short, free = (fim(rate=0.5, spm=0, target_length=size) for size in (20, None))
    batch = make_sequences([200] * 60)
    masks, unlimited = (replace(one, rate=1.0).with_tools(TOOLS).mask(batch, KEY) for one in (short, free))
    ends = [each.span_starts.values + each.span_lengths.values for each in (masks, unlimited)]
    assert np.array_equal(*ends)
    assert masks.target_lengths.max() == 20
    assert (short.mask(batch, KEY).span_lengths.lengths == 1).all()
    assert short.mask(batch, KEY).target_lengths.max() <= 20


def test_sentinels_are_special_tokens_of_the_tokenizer():
    owned = {**OWNED, **SENTINELS}
    special = load_objective("fill_in_the_middle", "starcoder").validate(replace(FACTS, owned_tokens=owned))
    assert {name: special[name] for name in SENTINELS} == SENTINELS
    for preset, name in (
        ("codellama", "▁<PRE>"),
        ("qwen_coder", "<|fim_prefix|>"),
        ("deepseek_coder", "<｜fim▁begin｜>"),
    ):
        with pytest.raises(FarspanError) as error:
            load_objective("fill_in_the_middle", preset).validate(replace(FACTS, owned_tokens=owned))
        assert f"sentinel {name} is no special token of the tokenizer" in str(error.value)
        assert "append=true" in str(error.value)
    one = {**owned, "<fim_suffix>": 31_990}
    with pytest.raises(FarspanError, match="have one id"):
        FillInTheMiddle().validate(replace(FACTS, owned_tokens=one))
    with pytest.raises(FarspanError, match="unlike the others"):
        FillInTheMiddle(middle="<fim_prefix>")
    with pytest.raises(FarspanError, match="give the tokenizer"):
        FillInTheMiddle(rate=1).mask(make_sequences([9]), KEY)


def test_text_is_cut_between_characters():
    batch = rows(["héllo wörld"])
    tools = Tools(type("Tokenizer", (Characters,), {"owned_tokens": OWNED, "vocab_size": 1 << 16})())
    objective = FillInTheMiddle(rate=1, append=True).with_tools(tools)
    masks = objective.mask(batch, KEY)
    special = objective.validate(replace(FACTS, vocab_size=1 << 16))
    text = objective.reconstruct(objective.render(batch, masks, special), masks, special)
    assert "".join(map(chr, text[0])) == "héllo wörld"
