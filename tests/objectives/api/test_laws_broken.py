"""Each law catches the objectives that break it; a sound one breaks none."""

from __future__ import annotations

from dataclasses import fields

import pytest

from objectives.api import laws
from objectives.api.laws import LAWS, broken
from objectives.api.trial import Trial
from tests.factories import make_sequences
from tests.objectives import broken as objectives
from tests.objectives.api.test_laws import facts_of

BATCH = make_sequences([200, 90, 60, 30, 8, 3], 3, seed=1)

CAUGHT = [
    (objectives.Counts, laws.masks_are_pure),
    (objectives.GlobalRandom, laws.masks_are_pure),
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
    (objectives.ForgetsAnOption, laws.options_are_json),
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


def trial_of(kind) -> Trial:
    accepted = [field.name for field in fields(kind) if field.init]

    def make(options):
        return kind(**{name: value for name, value in (options or {}).items() if name in accepted})

    return Trial(make, BATCH, facts_of(BATCH), accepted=accepted)


@pytest.mark.parametrize("kind", SOUND)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_a_sound_objective_breaks_no_law(law, kind):
    assert broken(law, trial_of(kind)) == []


@pytest.mark.parametrize(("kind", "law"), CAUGHT, ids=lambda value: value.__name__)
def test_what_is_broken_is_caught_by_its_law(kind, law):
    problems = broken(law, trial_of(kind))
    assert problems
    assert all(len(problem.splitlines()) == 1 for problem in problems)
