"""Facts of one to several hops: their draws, their questions and their places in a text."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.examples.scripts import load_example

facts = load_example("fact_chains")


def test_each_chain_has_names_of_its_own_and_a_thing():
    drawn = facts.draw(facts.Chains(count=4, hops=3, names=12), np.random.default_rng(0))
    names = [name for chain in drawn.names for name in chain]
    assert len(set(names)) == 12
    assert set(names) <= set(facts.NAMES[:12])
    assert len(drawn.things) == 4
    assert set(drawn.things) <= set(facts.THINGS[:8])


def test_questions_and_answers_name_the_same():
    drawn = facts.Drawn([["Mary", "Paul"], ["John", "Karl"]], ["gold", "iron"])
    assert drawn.question([(0, 1)]) == "What does Paul have?"
    assert drawn.question([(1, 1), (0, 0)]) == "What do Karl and Mary have?"
    assert drawn.answer([(1, 1), (0, 0)]) == " Karl iron, Mary gold"


def test_a_training_question_asks_for_names_of_any_chains():
    """A name of each chain would give the last answers away."""
    chains = facts.Chains(count=3, hops=2)
    asked = facts.asked(chains, "train", 200, np.random.default_rng(0))
    assert all(len(set(names)) == 3 for names in asked)
    of_all = np.mean([len({chain for chain, _ in names}) == 3 for names in asked])
    assert of_all == pytest.approx(6 * 4 * 2 / (6 * 5 * 4), abs=0.1)


def test_other_questions_ask_for_each_name_once():
    asked = facts.asked(facts.Chains(count=3, hops=2), "test", 9, np.random.default_rng(0))
    assert sorted(names for (names,) in asked) == [(chain, hop) for chain in range(3) for hop in range(2)]


@pytest.mark.parametrize("places", ["together", "anywhere", "apart"])
def test_facts_stand_between_all_sentences_in_their_order(places):
    drawn = facts.Drawn([["Mary", "Paul"], ["John", "Karl"]], ["gold", "iron"])
    sentences = [f"Sentence {number}." for number in range(6)]
    for seed in range(20):
        text = facts.with_facts(sentences, drawn, places, np.random.default_rng(seed))
        assert re.findall(r"Sentence \d", text) == [f"Sentence {number}" for number in range(6)]
        assert ("Mary has gold. Paul follows Mary." in text) >= (places == "together")
        rest = re.sub(r"Sentence \d\. ?", "", text).strip()
        assert rest.startswith("Facts: ")
        found = sorted(re.findall(r"\w+ \w+ \w+\.", rest))
        assert found == ["John has iron.", "Karl follows John.", "Mary has gold.", "Paul follows Mary."]


def test_more_names_or_things_than_there_are():
    with pytest.raises(ValueError, match="4 chains of 3 hops need 12 names of 8; there are"):
        facts.Chains(count=4, hops=3)
    with pytest.raises(ValueError, match="things is 40; there are"):
        facts.Chains(things=40)
