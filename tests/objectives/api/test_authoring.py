"""Objectives under development: checks and trials."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pytest
from hypothesis import given

from corpora.errors import FarspanError
from corpora.keyed import id_keys
from objectives.api.authoring import Row, SpanObjective
from objectives.api.masks import IN_SOURCE, IN_TARGET
from objectives.api.protocol import CorpusFacts
from objectives.api.trial import Trial, odd_rows
from objectives.span import Span
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.objectives.api.test_laws import facts_of

KEY = bytes(range(16))


@dataclass(frozen=True)
class Given(SpanObjective):
    """Hides what it is told to, of every row."""

    name: ClassVar[str] = "given"
    answer: Any = None

    def choose(self, row, rng):
        return self.answer(row, rng) if callable(self.answer) else self.answer


def spans_of(answer, lengths=(60,), documents=((0, 20, 20, 45),)) -> list[tuple[int, int]]:
    masks = Given(answer).mask(make_sequences(list(lengths), documents), KEY)
    return list(zip(masks.span_starts[0].tolist(), masks.span_lengths[0].tolist(), strict=True))


@pytest.mark.parametrize(
    ("answer", "spans"),
    [
        ([], []),
        ((), []),
        (np.empty((0, 2)), []),
        ([(3, 2)], [(3, 2)]),
        ([(30, 2), (3, 2)], [(3, 2), (30, 2)]),
        ([[3, 2], [5, 1]], [(3, 2), (5, 1)]),
        (np.array([[3, 2]], np.uint16), [(3, 2)]),
        ([(10, 20)], [(10, 10), (20, 10)]),
        ([(0, 60)], [(0, 20), (20, 25), (45, 15)]),
        ([(10, 10), (20, 25)], [(10, 10), (20, 25)]),
        ([(44, 2), (18, 3)], [(18, 2), (20, 1), (44, 1), (45, 1)]),
    ],
)
def test_spans_are_sorted_and_cut_at_documents(answer, spans):
    assert spans_of(answer) == spans
    assert spans_of(lambda row, rng: iter(answer)) == spans


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([(3, 0)], r"gave span \(3, 0\), which is empty"),
        ([(3, -1)], r"gave span \(3, -1\), which is empty"),
        ([(-1, 2)], r"gave span \(-1, 2\), which is not inside the row"),
        ([(59, 2)], r"gave span \(59, 2\), which is not inside the row"),
        ([(3, 2), (4, 1)], r"gave span \(4, 1\), which overlaps the one before it"),
        ([(3, 2), (3, 2)], r"gave span \(3, 2\), which overlaps"),
        (None, r"gave None; give pairs of whole numbers"),
        (5, r"gave 5; give pairs"),
        ([3, 2], r"gave \[3, 2\]; give pairs"),
        ([(1, 2, 3)], r".*; give pairs"),
        ([(1.0, 2.0)], r".*; give pairs of whole numbers"),
        ([(1, 2), (3,)], r".*; give pairs"),
        ("ab", r".*; give pairs"),
        ([*((at, 1) for at in range(51)), (51, 9)], r"gave 52 spans, .* but 50 sentinels are reserved"),
    ],
)
def test_what_cannot_be_hidden_names_the_row(answer, said, monkeypatch):
    monkeypatch.setattr(Given, "sentinels", 50)
    batch = make_sequences([60], 1)
    row = f"sequence {batch.sequence_id(0).hex()} of 60 tokens"
    with pytest.raises(FarspanError, match=f"given: {row}: choose {said}"):
        Given(answer).mask(batch, KEY)


def test_errors_of_choose_keep_their_place():
    with pytest.raises(ZeroDivisionError) as caught:
        spans_of(lambda row, rng: 1 / 0)
    assert "given: sequence" in caught.value.__notes__[0]


def test_a_row_has_its_text_and_a_generator_of_its_own():
    batch = make_sequences([60, 1, 0], [[0, 20, 20, 45], [0], [0]], mean_sentence=6)
    rows: list[Row] = []
    draws = []

    def look(row, rng):
        rows.append(row)
        draws.append(rng.integers(1 << 32, size=4).tolist())
        return []

    Given(look).mask(batch, KEY)
    assert [len(row) for row in rows] == [60, 1, 0]
    assert rows[0].documents.tolist() == [[0, 20], [20, 25], [45, 15]]
    assert rows[0].sentences[:, 0].tolist() == np.unique(batch.sentence_starts[0]).tolist()
    assert rows[0].sentences[:, 1].sum() == 60
    assert rows[2].sentences.shape == rows[2].documents.shape == (0, 2)
    assert rows[0].tokens.tolist() == batch.tokens[0].tolist()
    for column in (rows[0].tokens, rows[0].sentences, rows[0].documents):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
    for drawn, key in zip(draws, id_keys(KEY, batch.ids()), strict=True):
        assert drawn == np.random.Generator(np.random.Philox(key=key)).integers(1 << 32, size=4).tolist()


class Numbered(Given):
    sentinels = 10_000


class Masked(Given):
    marker = "<sent-mask>"


@given(batch=sequence_batches(min_rows=1))
def test_with_a_marker_every_span_becomes_it(batch):
    def starts(row, rng):
        return [(start, min(length, 2)) for start, length in row.sentences]

    for kind in (Masked, Numbered):
        objective = kind(starts)
        special = objective.validate(replace(facts_of(batch), max_tokens=10_000))
        masks = objective.mask(batch, KEY)
        assert (masks.span_flags.values == IN_SOURCE | IN_TARGET).all()
        examples = objective.render(batch, masks, special, segment_ids=True)
        text = objective.reconstruct(examples, masks, special)
        assert all(text[row].tolist() == batch.tokens[row].tolist() for row in range(len(batch)))
        assert examples.segment_ids is not None
        if kind is Masked:
            assert ((examples.source_ids == special["<sent-mask>"]).sum(1) == masks.span_starts.lengths).all()
            assert not len(special.sentinels)


@dataclass(frozen=True)
class Typed(SpanObjective):
    name: ClassVar[str] = "typed"
    count: int = 1
    share: float = 0.5
    most: int | None = None
    whole: bool = False
    word: str = "a"
    several: tuple[int, ...] = (1, 2)
    kind: Literal["x", "y"] = "x"

    def choose(self, row, rng):
        return []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": "3"}, "typed: option count is '3'; give a whole number"),
        ({"count": True}, "option count is True; give a whole number"),
        ({"count": None}, "option count is null; give a whole number"),
        ({"share": "much"}, "option share is 'much'; give a number"),
        ({"most": 1.5}, "option most is 1.5; give a whole number or null"),
        ({"whole": 1}, "option whole is 1; give true or false"),
        ({"word": 1}, "option word is 1; give a text"),
    ],
)
def test_options_of_another_type_are_refused(options, said):
    with pytest.raises(FarspanError, match=said):
        Typed(**options)


def test_options_are_the_fields_in_one_spelling():
    assert Typed(share=1) == Typed(share=1.0)
    assert type(Typed(share=1).share) is float
    expected = {"count": 1, "share": 0.5, "most": None, "whole": False, "word": "a", "several": [1, 2], "kind": "x"}
    assert Typed().options == expected


def test_without_choose_there_is_no_objective():
    @dataclass(frozen=True)
    class Nothing(SpanObjective):
        name = "nothing"

    with pytest.raises(TypeError, match="choose"):
        cast(Any, Nothing)()


@dataclass(frozen=True)
class Bounded(Given):
    """Hides the first tokens, and says how many at most."""

    most: int = 9
    name: ClassVar[str] = "bounded"

    def choose(self, row, rng):
        count = int(rng.integers(min(len(row), 9) + 1))
        return [(place, 1) for place in range(0, count, 2)] + [(place, 1) for place in range(1, count, 2)]

    def most_hidden(self, lengths):
        return np.full(len(lengths), self.most)


@dataclass(frozen=True)
class BoundedMasked(Bounded):
    marker: ClassVar[str] = "<sent-mask>"


@pytest.mark.parametrize("objective", [Bounded(), BoundedMasked()])
@given(batch=sequence_batches())
def test_no_draw_exceeds_the_lengths_that_follow_from_most_hidden(objective, batch):
    sources, targets = objective.longest(batch)
    masks = objective.mask(batch, KEY)
    assert (masks.source_lengths <= sources).all()
    assert (masks.target_lengths <= targets).all()


def test_lengths_are_no_larger_than_they_have_to_be():
    batch = make_sequences([60, 4], [(0, 20), (0,)])
    for objective, targets in ((Bounded(), [9 + 9 + 2, 4 + 4 + 2]), (BoundedMasked(), [9 + 2, 4 + 2])):
        longest = objective.longest(batch)
        assert [side.tolist() for side in longest] == [[60 + 3, 4 + 2], targets]


def test_without_most_hidden_no_length_is_known():
    assert Given([]).longest(make_sequences([60], [(0,)])) is None


def test_choose_is_held_to_most_hidden():
    batch = make_sequences([60], [(0,)])
    draws = (Bounded(most=0).mask(batch, bytes([number]) * 16) for number in range(20))
    with pytest.raises(FarspanError, match=r"sequence \w+ of 60 tokens: choose hid \d, but most_hidden says 0"):
        list(draws)


def trial(seed: int = 0) -> Trial:
    facts = CorpusFacts(VOCAB, OWNED, sequence_length=70, max_tokens=60, max_documents=2)
    return Trial(lambda options: Span(**(options or {})), make_sequences([60, 40], 2), facts, seed)


def test_a_row_is_named_by_number_size_and_sequence():
    one = trial()
    assert one.row(1) == f"row 1 (40 tokens in 2 documents, sequence {one.batch.sequence_id(1).hex()})"


def test_odd_rows_keep_the_sequence_and_have_one_document():
    one = trial()
    found = dict(odd_rows(one.batch))
    assert [batch.tokens.lengths.tolist() for batch in found.values()] == [[0], [1], [24], [60], [60], []]
    assert len(set(found["a row of one repeated token"].tokens.values.tolist())) == 1
    for batch in found.values():
        assert np.array_equal(batch.sequence_ids, one.batch.sequence_ids[: len(batch)])
        assert (batch.document_starts.lengths <= 1).all()
    assert replace(one, batch=found["a batch without rows"]).masks.span_starts.lengths.tolist() == []
