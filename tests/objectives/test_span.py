"""The span objective: golden lengths, uniform places, budgets, options."""

from collections import Counter
from hashlib import sha256
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.protocol import CorpusFacts, load_objective
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences

KEY = make_key(0, "test")


def facts(tokens: int, documents: int = 1) -> CorpusFacts:
    return CorpusFacts(VOCAB, OWNED, tokens + documents + 1, tokens, documents)


# Published lengths: (density, mean) tokens -> source, target.
GOLDEN = [
    (0.15, 3, 568, 512, 114),
    (0.15, 3, 4550, 4096, 910),
    (0.15, 3, 18204, 16384, 3642),
    (0.15, 10, 4734, 4096, 782),
    (0.5, 3, 766, 512, 512),
    (0.0625, 3, 17095, 16384, 1425),
    (0.0625, 12, 17379, 16384, 1177),
]


@pytest.mark.parametrize(("density", "mean", "tokens", "source", "target"), GOLDEN)
def test_published_lengths(density, mean, tokens, source, target):
    batch = make_sequences([tokens])
    objective = Span(density=density, mean_span_lengths=mean)
    masks = objective.mask(batch, KEY)
    assert (masks.source_lengths[0], masks.target_lengths[0]) == (source, target)
    examples = objective.render(batch, masks, objective.validate(facts(tokens)))
    assert examples.source_ids.shape == (1, source)
    assert examples.target_ids.shape == (1, target)


# Starts and lengths, as sha256, of rows of 0 to 16,382 tokens in up to five documents: masks made before stay the same.
DRAWN = {"t5": "730f89fe809bb8e8", "bart_ls": "2983f1cf6b6ffc07"}
DRAWN |= {"bart_ls_8k": "971ea6ac8c997bb9", "bart_ls_mixed": "23977c421a87f6ad"}


@pytest.mark.parametrize("preset", Span.presets)
def test_draws_and_keys_of_presets_stay_what_they_were(preset):
    objective = load_objective("span", preset, {"target_length": None})
    masks = objective.mask(make_sequences([0, 1, 2, 63, 64, 500, 16382], 5), make_key(0, "golden"))
    digest = sha256()
    for column in (masks.span_starts, masks.span_lengths):
        digest.update(column.values.astype("<i4").tobytes())
        digest.update(column.offsets.astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == DRAWN[preset]
    assert "placement" not in objective.options
    assert Span(placement="free").options["placement"] == "free"


SCHEDULE = [[100, 0.5], [1000, 0.15], [4000, 0.0625]]


def test_a_schedule_gives_each_length_its_density():
    scheduled = Span(density=SCHEDULE)
    for length, density in ((1, 0.5), (2, 0.5), (100, 0.5), (101, 0.15), (1000, 0.15), (4000, 0.0625), (9000, 0.0625)):
        batch = make_sequences([length])
        masks, plain = scheduled.mask(batch, KEY), Span(density=density).mask(batch, KEY)
        assert masks.span_starts.values.tolist() == plain.span_starts.values.tolist()
        assert masks.span_lengths.values.tolist() == plain.span_lengths.values.tolist()


def test_a_schedules_worst_row_need_not_be_the_longest():
    scheduled = Span(density=[[1000, 0.5], [4000, 0.01]], target_length=100)
    with pytest.raises(FarspanError, match=r"a row of 1000 tokens in 1 document, 500 of them .* target_length to 668"):
        scheduled.validate(facts(4000))
    assert len(Span(density=[[1000, 0.5], [4000, 0.01]]).validate(facts(4000)).sentinels) == 167
    with pytest.raises(FarspanError, match="a row of 1000 tokens in 1 document may need 167; raise sentinels to 167"):
        Span(density=[[1000, 0.5], [4000, 0.01]], sentinels=166).validate(facts(4000))
    # Bounds beyond the longest row are no rows.
    assert len(Span(density=[[1000, 0.5], [4000, 0.01]]).validate(facts(500)).sentinels) == 83


def test_mixed_means_are_equally_frequent():
    rows = 6_000
    objective = load_objective("span", "bart_ls_mixed")
    masks = objective.mask(make_sequences([1536] * rows), KEY)  # 96 hidden tokens in 24, 12 or 8 spans
    frequency = Counter(masks.span_starts.lengths.tolist())
    assert set(frequency) == {24, 12, 8}
    assert stats.chisquare(list(frequency.values())).pvalue > 1e-4


def test_bart_ls_hides_1024_of_16384_positions_where_the_target_holds_them():
    for preset, tokens in (("bart_ls", 16_382), ("bart_ls_8k", 8_190), ("bart_ls_mixed", 16_382)):
        batch = make_sequences([tokens] * 4)
        masks = load_objective("span", preset, {"target_length": None}).mask(batch, KEY)
        assert [masks.span_lengths[row].sum() for row in range(4)] == [1024] * 4
        # As published, 1,024 positions; there hidden text that they do not hold is lost.
        lengths = load_objective("span", preset).mask(batch, KEY).target_lengths
        assert all(1023 <= length <= 1024 for length in lengths)
    special = load_objective("span", "bart_ls", {"target_length": None}).validate(facts(16_382))
    assert len(special.sentinels) == 205
    assert (np.diff(special.sentinels) == 1).all()
    special = load_objective("span", "t5").validate(facts(512))
    assert (np.diff(special.sentinels) == -1).all()
    assert special.sentinels[0] == special.vocab_size - 1


schedules = st.lists(
    st.tuples(st.integers(1, 200), st.floats(0.01, 0.95)), min_size=1, max_size=3, unique_by=itemgetter(0)
)


@settings(max_examples=150)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=4),
    st.integers(1, 8),
    st.one_of(st.floats(0.01, 0.95), schedules.map(sorted)),
    st.lists(st.floats(1, 12), min_size=1, max_size=3),
    st.booleans(),
    st.integers(4, 200),
    st.sampled_from(["t5", "rolled", "free"]),
)
def test_reduce_fits_and_sentinels_suffice(lengths, documents, density, means, begin, target_length, placement):
    batch = make_sequences(lengths, documents)
    free = Span(density=density, mean_span_lengths=means, begin=begin, placement=placement)
    fitted = Span(**{**free.options, "target_length": target_length, "fit": "reduce"})
    most = int(batch.document_starts.lengths.max())
    for objective in (free, fitted):
        special = objective.validate(facts(max(lengths), most))
        masks = objective.mask(batch, KEY)
        assert int(masks.span_starts.lengths.max()) <= len(special.sentinels)
        # Rendering confirms the lengths that masking promised.
        examples = objective.render(batch, masks, special)
        assert np.array_equal(examples.source_lengths, masks.source_lengths)
        assert np.array_equal(examples.target_lengths, masks.target_lengths)
    assert masks.target_lengths.max() <= target_length


def test_reduce_hides_as_much_as_fits():
    batch = make_sequences([16_382] * 3)
    noise = Span(**{**Span.presets["bart_ls"], "target_length": 1024}).mask(batch, KEY).span_lengths[0].sum()
    assert noise + round(noise / 5) + 2 <= 1024 < noise + 1 + round((noise + 1) / 5) + 2
    roomy = Span(**{**Span.presets["bart_ls"], "target_length": 4096}).mask(batch, KEY)
    assert roomy.span_lengths[0].sum() == 1024


def test_target_too_short_names_both_cures():
    objective = Span(**{**Span.presets["bart_ls"], "fit": "error"})
    with pytest.raises(FarspanError, match=r"raise target_length to 1231, or give fit=reduce"):
        objective.validate(facts(16_382))
    Span(**{**Span.presets["bart_ls"], "target_length": 1231, "fit": "error"}).validate(facts(16_382))
    # Every border may cut a span, and each piece costs a sentinel.
    with pytest.raises(FarspanError, match="raise target_length to 1240"):
        objective.validate(facts(16_382, documents=10))


def test_too_few_sentinels_are_an_error_before_work():
    with pytest.raises(FarspanError, match="raise sentinels to 27"):
        Span(sentinels=26).validate(facts(512, documents=2))
    assert len(Span(sentinels=27).validate(facts(512, documents=2)).sentinels) == 27
    assert len(Span(sentinels=100).validate(facts(512)).sentinels) == 100


def test_reduce_without_a_length_reduces_nothing():
    batch = make_sequences([300])
    one, other = (Span(fit=fit, target_length=None).mask(batch, KEY) for fit in ("reduce", "error"))
    assert one.to_arrow().equals(other.to_arrow())
