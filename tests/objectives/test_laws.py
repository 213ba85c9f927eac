"""The laws that every objective obeys, as properties over all that are installed and all their presets."""

import itertools
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.ragged import Ragged
from corpora.sequences import SequenceBatch
from objectives.base import CorpusFacts, Objective, equip, installed, load_objective
from objectives.masks import CANDIDATE, IN_TARGET, VISIBLE, MaskBatch
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.toy_tools import TOOLS

pytestmark = pytest.mark.usefixtures("farspan_lead")

OURS = [
    (name, preset) for name, entry in installed().items() for preset in (None, *getattr(entry.load(), "presets", {}))
]
THEIRS = [("lead_in", preset) for preset in (None, "short", "words")]
every_objective = pytest.mark.parametrize(("name", "preset"), [*OURS, *THEIRS])


def made(name: str, preset: str | None) -> Objective:
    """The objective with tools that need no model."""
    return equip(load_objective(name, preset), TOOLS)


def facts_of(batch: SequenceBatch) -> CorpusFacts:
    tokens, parts = batch.tokens.lengths, batch.document_starts.lengths
    return CorpusFacts(
        vocab_size=VOCAB,
        owned_tokens=OWNED,
        # Room for a token on either side of each document, and of the row.
        sequence_length=int((tokens + 2 * parts).max(initial=0)) + 2,
        # Objectives may refuse a corpus of a few tokens; no row has to be as long as the longest may be.
        max_tokens=max(int(tokens.max(initial=0)), 100),
        max_documents=max(int(parts.max(initial=0)), 1),
        room_per_document=2,
    )


def key_of(objective: Objective, seed: int = 0) -> bytes:
    return make_key(seed, "mask", {"objective": objective.name, **objective.options})


def rows_of(masks: MaskBatch) -> list[tuple]:
    """Every column of every row, as plain values that can be compared."""
    return [tuple(row.values()) for row in masks.to_arrow().to_pylist()]


@every_objective
@given(batch=sequence_batches(min_rows=1))
def test_1_text_comes_back_from_source_and_target(name, preset, batch):
    objective = made(name, preset)
    special = objective.validate(facts_of(batch))
    masks = objective.mask(batch, key_of(objective))
    text = objective.reconstruct(objective.render(batch, masks, special), masks, special)
    for row in range(len(batch)):
        assert np.array_equal(text[row], batch.tokens[row])
    hidden = (masks.span_flags.values & VISIBLE == 0) & (masks.span_flags.values != CANDIDATE)
    assert (masks.span_flags.values[hidden] & IN_TARGET != 0).all()


@every_objective
@given(batch=sequence_batches(min_rows=1, max_documents=30))
def test_2_and_3_budgets_hold_and_every_id_has_an_embedding(name, preset, batch):
    objective = made(name, preset)
    facts = facts_of(batch)
    special = objective.validate(facts)
    masks = objective.mask(batch, key_of(objective))
    examples = objective.render(batch, masks, special)
    assert np.array_equal(examples.source_lengths, masks.source_lengths)
    assert np.array_equal(examples.target_lengths, masks.target_lengths)
    assert examples.source_ids.shape[1] <= facts.sequence_length
    for ids, lengths in (
        (examples.source_ids, examples.source_lengths),
        (examples.target_ids, examples.target_lengths),
    ):
        assert ids.dtype == np.int32
        assert ids.shape[1] == lengths.max()
        assert ids.min(initial=0) >= 0
        assert ids.max(initial=0) < special.vocab_size
        assert (ids[np.arange(ids.shape[1]) >= lengths[:, None]] == special["<pad>"]).all()


@every_objective
@pytest.mark.parametrize(("room_per_sequence", "room_per_document"), itertools.product(range(3), repeat=2))
def test_2_no_source_is_longer_than_the_corpus_was_built_for(name, preset, room_per_sequence, room_per_document):
    """With the least room that an objective accepts, and rows that leave no more than that."""
    batch = make_sequences([100, 101, 99, 3], [[0], range(0, 100, 2), range(99), [0, 1, 2]])
    objective = made(name, preset)
    taken = batch.tokens.lengths + room_per_document * batch.document_starts.lengths
    facts = replace(
        facts_of(batch),
        sequence_length=int(taken.max()) + room_per_sequence,
        room_per_sequence=room_per_sequence,
        room_per_document=room_per_document,
    )
    special = None
    with suppress(FarspanError):
        special = objective.validate(facts)
    if special is None:
        assert (room_per_sequence, room_per_document) != (2, 2)
        return
    examples = objective.render(batch, objective.mask(batch, key_of(objective)), special)
    assert examples.source_lengths.max() <= facts.sequence_length


@every_objective
@given(batch=sequence_batches(min_rows=1), seed=st.integers(0, 1000), data=st.data())
def test_4_a_mask_depends_on_its_row_alone(name, preset, batch, seed, data):
    objective = made(name, preset)
    key = key_of(objective, seed)
    together = rows_of(objective.mask(batch, key))
    order = data.draw(st.permutations(range(len(batch))))
    assert rows_of(objective.mask(batch.take(order), key)) == [together[row] for row in order]
    for row in range(len(batch)):
        assert rows_of(made(name, preset).mask(batch.take([row]), key)) == [together[row]]


@every_objective
@given(batch=sequence_batches(min_rows=1, max_documents=30))
def test_5_spans_hold_text_and_lie_inside_one_document(name, preset, batch):
    masks = made(name, preset).mask(batch, bytes(16))
    for row in range(len(batch)):
        starts = masks.span_starts[row].astype(int)
        stops = starts + masks.span_lengths[row]
        assert (starts < stops).all()
        assert (stops[:-1] <= starts[1:]).all()
        assert stops.max(initial=0) <= batch.tokens.lengths[row]
        document = np.searchsorted(batch.document_starts[row], starts, "right")
        assert np.array_equal(document, np.searchsorted(batch.document_starts[row], stops - 1, "right"))


@every_objective
def test_6_odd_rows_have_a_defined_result(name, preset):
    objective = made(name, preset)
    batch = make_sequences([0, 1, 2, 50, 1_000_000], mean_sentence=1)
    identical = Ragged(np.full_like(batch.tokens.values, 7), batch.tokens.offsets)
    for tokens in (batch.tokens, identical):
        odd = SequenceBatch(**{**{f: getattr(batch, f) for f in batch.__slots__}, "tokens": tokens})
        special = objective.validate(facts_of(odd))
        masks = objective.mask(odd, key_of(objective))
        examples = objective.render(odd, masks, special)
        assert np.array_equal(examples.source_lengths, masks.source_lengths)
        text = objective.reconstruct(examples, masks, special)
        assert all(np.array_equal(text[row], tokens[row]) for row in range(len(odd)))


@every_objective
def test_6_a_block_without_rows_is_masked_and_rendered(name, preset):
    objective = made(name, preset)
    batch = make_sequences([])
    masks = objective.mask(batch, bytes(16))
    examples = objective.render(batch, masks, objective.validate(facts_of(batch)))
    assert (len(masks), len(examples)) == (0, 0)


DRAWN = [
    ("span", "t5", {}),
    ("span", "t5", {"placement": "rolled"}),
    ("span", "t5", {"placement": "free"}),
    ("principal_sentences", None, {"strategy": "random"}),
    ("principal_sentences", "pegasus", {}),
    ("entity_pyramid", "primera", {}),
    ("model_based", "bart_ls", {}),
    ("cross_document", "paper", {}),
]


@pytest.mark.parametrize(("name", "preset", "options"), DRAWN, ids=str)
def test_4_seeds_next_to_each_other_are_unrelated(name, preset, options):
    """No row has the mask that it, or the row beside it, has with the seed beside this one."""
    objective = equip(load_objective(name, preset, options), TOOLS)
    batch = make_sequences([600] * 30, [[0, 200, 400]] * 30, vocab=100, mean_sentence=3)
    same = replace(batch, **{column: tiled(getattr(batch, column), 30) for column in ("tokens", "sentence_starts")})
    seen = [str(row[1:]) for seed in range(3) for row in rows_of(objective.mask(same, key_of(objective, seed)))]
    assert len(set(seen)) == len(seen) == 90


def tiled(column: Ragged, rows: int) -> Ragged:
    """The first row, again and again."""
    return Ragged.from_rows([column[0]] * rows, column.values.dtype)


@pytest.mark.parametrize(("name", "preset"), OURS)
@given(batch=sequence_batches(min_rows=1), seed=st.integers(0, 2**32), target_length=st.sampled_from([None, 12, 64]))
def test_no_draw_is_longer_than_an_objective_says(name, preset, batch, seed, target_length):
    objective = made(name, preset)
    if target_length is not None and "target_length" in objective.options:
        objective = replace(objective, target_length=target_length)
    sources, targets = objective.longest(batch)
    with suppress(FarspanError):  # a span's target that may not fit
        special = objective.validate(facts_of(batch))
        masks = objective.mask(batch, key_of(objective, seed))
        examples = objective.render(batch, masks, special)
        assert (examples.source_lengths <= sources).all()
        assert (examples.target_lengths <= targets).all()
        if target_length is not None and name in ("principal_sentences", "entity_pyramid", "model_based"):
            assert (targets <= target_length).all()
