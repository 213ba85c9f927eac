"""The laws of objectives, and objectives that break them."""

import itertools
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.schemas.sequences import SequenceBatch
from corpora.storage.ragged import Ragged
from objectives.api import laws
from objectives.api.laws import (
    LAWS,
    broken,
    examples_fit,
    lengths_are_those_of_the_examples,
    masks_are_pure,
    separators_stay,
    spans_hold_text,
    text_comes_back,
)
from objectives.api.protocol import OBJECTIVES, CorpusFacts, Objective, equip, load_objective
from objectives.api.trial import Trial
from tests.factories import OWNED, VOCAB, make_sequences, sequence_batches
from tests.objectives import broken as objectives
from tests.objectives.handmade import rows_of
from tests.toy_tools import TOOLS

pytestmark = pytest.mark.usefixtures("farspan_lead")

OURS = [
    (name, preset)
    for name, entry in OBJECTIVES.installed().items()
    for preset in (None, *getattr(entry.load(), "presets", {}))
]
THEIRS = [("lead_in", preset) for preset in (None, "short", "words")]
every_objective = pytest.mark.parametrize(("name", "preset"), [*OURS, *THEIRS])
# presets differ little in code, so each one gets a part of the examples
some = settings(max_examples=settings().max_examples * 2 // 5)


def made(name: str, preset: str | None) -> Any:
    """The objective with tools that need no model."""
    # the toy tokenizer has no sentinels, and some rows are longer than UL2's
    options: dict[str, dict[str, Any]] = {"fill_in_the_middle": {"append": True}, "mixture": {"fit": "window"}}
    return equip(load_objective(name, preset, options.get(name)), TOOLS)


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


def trial_of(name: str, preset: str | None, batch: SequenceBatch, facts: CorpusFacts | None = None, seed=0) -> Trial:
    def make(options):
        return made(name, preset) if options is None else equip(load_objective(name, options=options), TOOLS)

    return Trial(make, batch, facts or facts_of(batch), seed)


def assert_holds(trial: Trial, *names) -> None:
    for law in names:
        assert list(law(trial)) == []


@every_objective
@some
@given(batch=sequence_batches(min_rows=1))
def test_text_comes_back_from_source_and_target(name, preset, batch):
    assert_holds(trial_of(name, preset, batch), text_comes_back, separators_stay)


@every_objective
@some
@given(batch=sequence_batches(min_rows=1, max_documents=30))
def test_budgets_hold_and_every_id_has_an_embedding(name, preset, batch):
    assert_holds(trial_of(name, preset, batch), spans_hold_text, lengths_are_those_of_the_examples, examples_fit)


@every_objective
@pytest.mark.parametrize(("room_per_sequence", "room_per_document"), itertools.product(range(3), repeat=2))
def test_no_source_is_longer_than_the_corpus_was_built_for(name, preset, room_per_sequence, room_per_document):
    """With the least room that an objective accepts, and rows that leave no more than that."""
    batch = make_sequences([100, 101, 99, 3], [[0], range(0, 100, 2), range(99), [0, 1, 2]])
    taken = batch.tokens.lengths + room_per_document * batch.document_starts.lengths
    facts = replace(
        facts_of(batch),
        sequence_length=int(taken.max()) + room_per_sequence,
        room_per_sequence=room_per_sequence,
        room_per_document=room_per_document,
    )
    trial = trial_of(name, preset, batch, facts)
    try:
        trial.objective.validate(facts)
    except FarspanError:
        assert (room_per_sequence, room_per_document) != (2, 2)
        return
    assert_holds(trial, examples_fit)


@every_objective
@some
@given(batch=sequence_batches(min_rows=1), seed=st.integers(0, 1000))
def test_a_mask_depends_on_its_row_alone(name, preset, batch, seed):
    assert_holds(trial_of(name, preset, batch, seed=seed), masks_are_pure)


@every_objective
def test_every_law_holds_on_plain_rows(name, preset):
    trial = trial_of(name, preset, make_sequences([300, 60, 5, 0], 3, mean_sentence=7))
    assert {law.__name__: broken(law, trial) for law in LAWS} == {law.__name__: [] for law in LAWS}


@every_objective
def test_odd_rows_have_a_defined_result(name, preset):
    batch = make_sequences([0, 1, 2, 50, 100_000], mean_sentence=1)
    identical = Ragged(np.full_like(batch.tokens.values, 7), batch.tokens.offsets)
    for tokens in (batch.tokens, identical):
        odd = replace(batch, tokens=tokens)
        assert_holds(trial_of(name, preset, odd), lengths_are_those_of_the_examples, text_comes_back)


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
    same = replace(batch, tokens=tiled(batch.tokens, 30), sentence_starts=tiled(batch.sentence_starts, 30))
    seen = [str(row[1:]) for seed in range(3) for row in rows_of(objective.mask(same, key_of(objective, seed)))]
    assert len(set(seen)) == len(seen) == 90


def tiled(column: Ragged, rows: int) -> Ragged:
    """The first row, again and again."""
    return Ragged.from_rows([column[0]] * rows, column.values.dtype)


@pytest.mark.parametrize(("name", "preset"), OURS)
@some
@given(batch=sequence_batches(min_rows=1), seed=st.integers(0, 2**32), target_length=st.sampled_from([None, 12, 64]))
def test_no_draw_is_longer_than_an_objective_says(name, preset, batch, seed, target_length):
    objective = made(name, preset)
    if target_length is not None and "target_length" in objective.options:
        objective = replace(objective, target_length=target_length)
    longest = objective.longest(batch)
    if longest is None:
        pytest.skip("the objective states no bound")
    sources, targets = longest
    with suppress(FarspanError):  # a span's target that may not fit
        special = objective.validate(facts_of(batch))
        examples = objective.render(batch, objective.mask(batch, key_of(objective, seed)), special)
        assert (examples.source_lengths <= sources).all()
        assert (examples.target_lengths <= targets).all()
        if target_length is not None and name in ("principal_sentences", "entity_pyramid", "model_based"):
            assert (targets <= target_length).all()


BATCH = make_sequences([200, 90, 60, 30, 8, 3], 3, seed=1)

CAUGHT = [
    (objectives.Counts, laws.masks_are_pure),
    (objectives.SeesPlaces, laws.masks_are_pure),
    (objectives.SeesTheBatch, laws.masks_are_pure),
    (objectives.Writes, laws.masks_are_pure),
    (objectives.Overlaps, laws.spans_hold_text),
    (objectives.CrossesBorders, laws.spans_hold_text),
    (objectives.RunsOver, laws.spans_hold_text),
    (objectives.LosesText, laws.spans_hold_text),
    (objectives.ForgetsTheEnd, laws.lengths_are_those_of_the_examples),
    (objectives.ForgetsSentinels, laws.examples_fit),
    (objectives.ForgetsSentinels, laws.special_tokens_are_numbered_once),
    (objectives.IgnoresTheKey, laws.draws_follow_key_and_sequence),
    (objectives.IgnoresTheSequence, laws.draws_follow_key_and_sequence),
    (objectives.FollowsTheLength, laws.draws_follow_key_and_sequence),
    (objectives.HidesHalf, laws.draws_follow_key_and_sequence),
    (objectives.EatsSeparators, laws.separators_stay),
    (objectives.HidesAnOption, laws.options_are_json),
    (objectives.OptionsAreNoJson, laws.options_are_json),
    (objectives.NeedsText, laws.odd_rows_have_a_result),
    (objectives.SelectsOthers, laws.selection_keeps_its_own),
    *((objectives.Exits, law) for law in (laws.options_are_json, laws.masks_are_pure, laws.odd_rows_have_a_result)),
]


SOUND = [
    objectives.Sound,
    objectives.LeavesOutADefault,
    objectives.Divides,
    objectives.EveryThird,
    objectives.RarestTokens,
]


def faulty_trial(kind) -> Trial:
    accepted = [field.name for field in fields(kind) if field.init]

    def make(options):
        return kind(**{name: value for name, value in (options or {}).items() if name in accepted})

    return Trial(make, BATCH, facts_of(BATCH), accepted=accepted)


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_sound_objective_breaks_no_law(law, kind):
    assert broken(law, faulty_trial(kind)) == []


@pytest.mark.parametrize(("kind", "law"), CAUGHT, ids=lambda value: value.__name__)
def test_what_is_broken_is_caught_by_its_law(kind, law):
    problems = broken(law, faulty_trial(kind))
    assert problems
    assert all(len(problem.splitlines()) == 1 for problem in problems)
