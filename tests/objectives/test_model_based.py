"""The model-based objective: selections of a plain implementation, exact budgets, load-time choice; its scorer."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.keyed import make_key
from objectives.api.examples import IGNORED
from objectives.api.masks import CANDIDATE, IN_SOURCE, IN_TARGET
from objectives.api.protocol import CorpusFacts, Objective, Tools, equip, load_objective, mask_key
from objectives.api.special_tokens import DOCUMENT_BEGIN, DOCUMENT_END, DOCUMENT_SEPARATOR, MASK, SpecialTokens
from objectives.draws.compositions import count_hidden_tokens
from objectives.model_based import ModelBased
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences
from tests.objectives.handmade import real_rows, rows_of
from tests.objectives.plain_model_based import aggregate, choose
from tests.toy_tools import TOOLS, ToyScorer, ToyTokenizer

KEY = make_key(0, "test")
HIDDEN = IN_SOURCE | IN_TARGET


class RandomScorer(ToyScorer):
    """Losses by (row's first text token, position); few values, so that many spans tie. Keeps what it was shown."""

    def __init__(self, special=ToyScorer.special, values=7):
        self.special, self.values, self.shown = special, values, None

    def losses(self, ids, lengths, labels):
        self.shown = ids, lengths, labels
        drawn = (labels.astype(np.int64) * 7919 + np.arange(ids.shape[1]) * 31) % self.values
        return np.where(labels != IGNORED, drawn / 8, 0).astype(np.float32)


def model_based(scorer=None, **options):
    return ModelBased(**options).with_tools(Tools(ToyTokenizer(), scorer or RandomScorer()))


def facts(tokens, documents=1):
    return CorpusFacts(VOCAB, OWNED, tokens + documents + 1, tokens, documents)


def hidden_tokens(masks):
    """``(n,)`` tokens in IN_TARGET spans."""
    rows = np.repeat(np.arange(len(masks)), masks.span_flags.lengths)
    return np.bincount(rows, masks.span_lengths.values * (masks.span_flags.values == HIDDEN), len(masks)).astype(int)


@pytest.mark.parametrize("aggregation", ["mean", "sum", "max"])
@pytest.mark.parametrize(("target_length", "sentinels"), [(None, None), (25, None), (None, 3)])
def test_a_thousand_rows_are_those_of_the_plain_way(aggregation, target_length, sentinels):
    """Nine settings of 120 rows: losses with many ties, one and many documents, all budgets."""
    lengths = np.random.default_rng(3).integers(0, 300, 120)
    assert compare(make_sequences(lengths, 3, seed=1), aggregation, target_length, sentinels) > 10


@pytest.mark.parametrize(("target_length", "sentinels"), [(None, None), (40, None), (None, 5)])
def test_real_rows_are_those_of_the_plain_way(target_length, sentinels):
    assert compare(real_rows()[0], "mean", target_length, sentinels) > 0


def compare(batch, aggregation, target_length, sentinels):
    """The number of spans that were cut; without any, no budget would have ended in the middle of one."""
    scorer = RandomScorer()
    options = {"density": 0.1, "candidate_density": 0.4, "mean_span_lengths": [2, 5]}
    objective = model_based(
        scorer, **options, aggregation=aggregation, target_length=target_length, sentinels=sentinels
    )
    masks = objective.mask(batch, KEY)
    candidates = Span(density=0.4, mean_span_lengths=[2, 5]).mask(batch, KEY)
    cuts = 0
    for row in range(len(batch)):
        spans = list(zip(candidates.span_starts[row].tolist(), candidates.span_lengths[row].tolist(), strict=True))
        text = batch.tokens[row].astype(np.int64)
        places = np.arange(len(text)) + 1  # behind <bos>; the scorer knows no separator
        token_losses = ((text * 7919 + places * 31) % 7 / 8).tolist()
        losses = [
            float(np.float32(aggregate(token_losses[start : start + size], aggregation))) for start, size in spans
        ]
        hidden = int(count_hidden_tokens(np.array([len(text)]), 0.1)[0])
        room = math.inf if target_length is None else target_length - 1
        expected = choose(spans, losses, hidden, sentinels or math.inf, room)
        got = list(
            zip(
                masks.span_starts[row].tolist(),
                masks.span_lengths[row].tolist(),
                (masks.span_flags[row] == HIDDEN).tolist(),
                masks.span_scores[row].tolist(),
                masks.span_ranks[row].tolist(),
                strict=True,
            )
        )
        assert got == expected
        cuts += len(got) - len(spans)
    assert set(masks.span_flags.values) == {HIDDEN, CANDIDATE}
    return cuts


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=4),
    st.sampled_from([1 / 16, 0.1, 0.3]),
    st.sampled_from([0.3, 0.5]),
    st.integers(0, 2**31),
)
def test_hidden_tokens_are_exactly_those_of_span_corruption(lengths, density, candidate_density, seed):
    """A share of the spans varies with their lengths instead."""
    batch = make_sequences(lengths, 3, seed=seed)
    masks = model_based(density=density, candidate_density=candidate_density).mask(batch, KEY)
    assert np.array_equal(hidden_tokens(masks), count_hidden_tokens(batch.tokens.lengths, density))
    assert np.array_equal(
        masks.span_lengths.values.sum(), count_hidden_tokens(batch.tokens.lengths, candidate_density).sum()
    )


def test_bart_ls_hides_a_fifth_of_the_spans_that_5120_of_16384_tokens_make():
    """A share of spans is no fixed number of tokens; a density is one, to the token."""
    batch = make_sequences([16_384] * 8, dtype=np.int32)
    preset: Any = equip(load_objective("model_based", "bart_ls", {"target_length": None}), TOOLS)
    masks = preset.mask(batch, KEY)
    drawn = masks.span_flags.lengths
    assert set(drawn.tolist()) <= {round(5120 / mean) for mean in (4, 8, 12)}
    assert [masks.span_lengths[row].sum() for row in range(8)] == [5120] * 8
    hidden = [int((masks.span_flags[row] == HIDDEN).sum()) for row in range(8)]
    assert hidden == [count // 5 for count in drawn.tolist()]
    assert len(set(hidden_tokens(masks).tolist())) > 1
    exactly = replace(preset, density=1 / 16, span_share=None).with_tools(TOOLS)
    assert hidden_tokens(exactly.mask(batch, KEY)).tolist() == [1024] * 8
    # As published, 1,024 target positions: the hardest that they hold.
    for share, most in ((0.2, masks.target_lengths.max()), (0.9, 1024)):
        fitting = equip(load_objective("model_based", "bart_ls", {"span_share": share}), TOOLS)
        assert fitting.mask(batch, KEY).target_lengths.max() == most <= 1024


@pytest.mark.parametrize(("share", "kept"), [(0.2, 5), (0.29, 7), (0.001, 1), (1, 25), (None, 25)])
def test_a_share_of_the_spans_is_rounded_down_and_never_none(share, kept):
    batch = make_sequences([250])  # 25 candidates
    objective = model_based(density=None, span_share=share, candidate_density=0.5)
    masks = objective.mask(batch, KEY)
    assert len(masks.span_flags.values) == 25
    assert (masks.span_flags.values == HIDDEN).sum() == kept
    assert len(objective.validate(facts(250)).sentinels) == kept


def test_of_several_budgets_the_first_that_is_full_ends_the_choice():
    batch = make_sequences([1000])  # 62 candidates of 312 tokens
    by_share = model_based(density=None, span_share=0.2)
    assert hidden_tokens(model_based(density=0.02, span_share=0.5).mask(batch, KEY)).tolist() == [20]
    wide = model_based(density=0.3, span_share=0.2)
    assert rows_of(wide.mask(batch, KEY)) == rows_of(by_share.mask(batch, KEY))


def test_rows_beside_a_short_one_keep_their_spans():
    """The published code lets the row with the fewest spans say how many every row keeps."""
    batch = make_sequences([2000, 20, 2000], seed=4)
    objective = model_based()
    together = rows_of(objective.mask(batch, KEY))
    assert rows_of(objective.mask(batch.take([0, 2]), KEY)) == [together[0], together[2]]
    assert together == [rows_of(objective.mask(batch.take([row]), KEY))[0] for row in range(3)]


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 150), min_size=1, max_size=3),
    st.lists(st.sampled_from([None, 0.02, 0.05, 0.11, 0.3]), min_size=2, max_size=2),
    st.lists(st.sampled_from([None, 0.1, 0.2, 0.9, 1.0]), min_size=2, max_size=2),
    st.lists(st.sampled_from([None, 5, 12, 40]), min_size=2, max_size=2),
    st.lists(st.sampled_from([None, 1, 3, 20]), min_size=2, max_size=2),
    st.integers(0, 2**31),
)
def test_choosing_anew_is_masking_anew(lengths, density, share, target_length, sentinels, seed):
    batch = make_sequences(lengths, 3, seed=seed)
    budgets = {"density": density, "span_share": share, "target_length": target_length, "sentinels": sentinels}
    a, b = (model_based(**{option: values[i] for option, values in budgets.items()}) for i in range(2))
    assert mask_key(1, a) == mask_key(1, b)
    assert mask_key(1, a) != mask_key(1, model_based(aggregation="sum"))
    fresh, expected = a.mask(batch, mask_key(1, a)), rows_of(b.mask(batch, mask_key(1, b)))
    without_scorer = replace(b)
    assert rows_of(without_scorer.select(batch, fresh)) == expected
    assert rows_of(b.select(batch, a.select(batch, fresh))) == expected
    assert rows_of(a.select(batch, fresh)) == rows_of(fresh)


def test_only_masks_with_losses_can_be_chosen_anew():
    batch = make_sequences([50])
    with pytest.raises(FarspanError, match="no scores and ranks; run `farspan mask` again"):
        model_based().select(batch, Span().mask(batch, KEY))


@pytest.mark.parametrize("target_length", [None, 4, 30])
@pytest.mark.parametrize("sentinels", [None, 2])
def test_reserved_sentinels_and_target_length_hold_for_the_worst_row(target_length, sentinels):
    """Every candidate of one token is harder than any longer one: as many spans as a budget can hold."""

    class ShortFirst(ToyScorer):
        def losses(self, ids, lengths, labels):
            asked = labels != IGNORED
            beside = np.zeros_like(asked)
            beside[:, 1:] |= asked[:, :-1]
            beside[:, :-1] |= asked[:, 1:]
            return np.where(asked, 1.0 - 0.5 * beside, 0).astype(np.float32)

    objective = model_based(
        ShortFirst(), density=0.1, candidate_density=0.5, mean_span_lengths=[1, 1.5],
        target_length=target_length, sentinels=sentinels, begin=True, separator=None,
    )  # fmt: skip
    batch = make_sequences([200] * 30 + [3, 50])
    special = objective.validate(facts(200))
    masks = objective.mask(batch, KEY)
    examples = objective.render(batch, masks, special)
    markers = [int((masks.span_flags[row] == HIDDEN).sum()) for row in range(len(batch))]
    # 20 of 200 tokens are hidden, in spans of one token and one sentinel.
    most = min(20, sentinels or 20, 20 if target_length is None else (target_length - 2) // 2)
    assert max(markers) == most
    assert len(special.sentinels) == (sentinels or most)
    if target_length and sentinels is None:
        assert examples.target_lengths.max() == target_length


def test_the_scorer_sees_every_candidate_token_as_a_mask():
    batch = make_sequences([50, 0, 9], [[0, 10, 30], [], [0]], seed=2)
    scorer = RandomScorer()
    masks = model_based(scorer).mask(batch, KEY)
    ids, lengths, labels = scorer.shown
    assert lengths.tolist() == [52, 2, 11]
    for row in range(3):
        text = ids[row, 1 : lengths[row] - 1]
        assert ids[row, [0, lengths[row] - 1]].tolist() == [OWNED["<bos>"], OWNED["<eos>"]]
        hidden = np.zeros(len(text), bool)
        for start, size in zip(masks.span_starts[row], masks.span_lengths[row], strict=True):
            hidden[start : start + size] = True
        assert (text[hidden] == scorer.special[MASK]).all()
        assert np.array_equal(text[~hidden], batch.tokens[row][~hidden])
        asked = labels[row, 1 : lengths[row] - 1]
        assert np.array_equal(asked[hidden], batch.tokens[row][hidden])
        assert (asked[~hidden] == IGNORED).all()
        assert (labels[row, [0, lengths[row] - 1]] == IGNORED).all()


@pytest.mark.parametrize("edges", [(DOCUMENT_SEPARATOR,), (DOCUMENT_BEGIN, DOCUMENT_END)])
def test_the_scorer_sees_the_special_tokens_it_knows(edges):
    special = SpecialTokens.append(VOCAB, {"<pad>": 0}, [MASK, *edges])
    bare = SpecialTokens(
        {name: number for name, number in special.ids.items() if name not in ("<bos>", "<eos>")}, 40_000
    )
    batch = make_sequences([50], [[0, 10, 30]], seed=2)
    scorer = RandomScorer(bare)
    model_based(scorer).mask(batch, KEY)
    ids = scorer.shown[0][0]
    marks = [(place, int(ids[place])) for place in np.flatnonzero(ids > bare[MASK]).tolist()]
    if len(edges) == 1:
        assert marks == [(10, bare[edges[0]]), (31, bare[edges[0]])]
    else:
        before, after = (bare[edge] for edge in edges)
        assert marks == [(0, before), (11, after), (12, before), (33, after), (34, before), (55, after)]


def test_without_a_scorer_the_message_says_how_to_give_one():
    for attempt in (
        lambda: ModelBased().mask(make_sequences([9]), KEY),
        lambda: ModelBased().with_tools(Tools(ToyTokenizer())),
    ):
        with pytest.raises(
            FarspanError,
            match=r"--scorer FOLDER, in a recipe data\.objective\.scorer, or in Python .*Tools\(tokenizer, scorer=",
        ):
            attempt()
    assert ModelBased().tools == {}
    assert model_based().tools == {"scorer": "toy scorer"}
    assert isinstance(ModelBased(), Objective)


def test_a_scorer_of_other_ids_is_refused_naming_both():
    class Foreign(ToyScorer):
        tokenizer_fingerprint = "foreign"

    with pytest.raises(FarspanError, match="scorer's tokenizer has fingerprint foreign, the corpus's toy"):
        model_based(Foreign())


def test_a_scorer_without_a_mask_token_is_refused():
    with pytest.raises(FarspanError, match="the scorer has no <mask> token"):
        model_based(RandomScorer(SpecialTokens.append(VOCAB, OWNED)))


def test_losses_that_are_no_numbers_are_refused_by_sequence():
    class Broken(ToyScorer):
        def losses(self, ids, lengths, labels):
            losses = super().losses(ids, lengths, labels)
            losses[2, labels[2] != IGNORED] = np.nan
            return losses

    batch = make_sequences([50, 0, 60])
    with pytest.raises(FarspanError, match=f"losses of sequence {batch.sequence_id(2).hex()} are not finite"):
        model_based(Broken()).mask(batch, KEY)
