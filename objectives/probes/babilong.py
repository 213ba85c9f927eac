"""BABILong's shape: a story of short facts, in order, between the sentences of documents, and a question about it.

Source: Kuratov et al. 2024, "BABILong", section 2. The stories follow the kinds of Weston et al. 2015, "Towards
AI-complete question answering", tasks 1 to 5, in a world and with sentences of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from objectives.probes.example import WHOLE, Draws, Example, Probe, Request
from objectives.probes.ruler import essay

PEOPLE = ("Anouk", "Bruno", "Celia", "Dimitri", "Edda", "Farid")
PLACES = ("cellar", "workshop", "attic", "orchard", "library", "stable")
THINGS = ("lantern", "kettle", "ladder", "violin", "compass", "basket")
_SIDES = {"north": "south", "east": "west"}
_STEPS = 8  # facts of a story, on average, beside those that its question is about


class Story(NamedTuple):
    """Facts in order, a question, its answer, and the numbers of the needed facts."""

    facts: Sequence[str]
    query: str
    answer: str
    needed: Sequence[int]


@dataclass
class StoryWorld:
    """People who walk between places and carry things, with the facts that say so."""

    draws: Draws
    facts: list[str] = field(default_factory=list)
    at: dict[str, str] = field(default_factory=dict)  # place of each person that has one
    moved: dict[str, int] = field(default_factory=dict)  # number of the fact that said so

    def tell(self, fact: str) -> int:
        """Add a fact, and return its number."""
        self.facts.append(fact)
        return len(self.facts) - 1

    def walk(self, who: str) -> int:
        """Let a person walk to another place."""
        self.at[who] = self.draws.one([one for one in PLACES if one != self.at.get(who)])
        self.moved[who] = self.tell(f"{who} walked to the {self.at[who]}.")
        return self.moved[who]

    def take(self, who: str, thing: str) -> int:
        """Let a person take a thing."""
        return self.tell(f"{who} picked up the {thing}.")

    def wander(self, steps: int, people: Sequence[str] = PEOPLE) -> None:
        """Let people walk about, ``steps`` times on average, so that no fact has a fixed number."""
        for _ in range(1 + int(self.draws.below(2 * steps - 1, 1)[0])):
            self.walk(self.draws.one(people))


def one_fact(draws: Draws) -> Story:
    """qa1: the place of a person."""
    world = StoryWorld(draws)
    world.wander(_STEPS)
    who = draws.one(sorted(world.at))
    return Story(world.facts, f"Where is {who}? {who} is in the", world.at[who], [world.moved[who]])


def two_facts(draws: Draws) -> Story:
    """qa2: the place of a thing, by its carrier."""
    world = StoryWorld(draws)
    thing, *others = draws.pick(THINGS, 3)
    who, *rest = draws.pick(PEOPLE, len(PEOPLE))
    world.wander(_STEPS // 2)
    for other, carrier in zip(others, rest, strict=False):
        world.take(carrier, other)
    taken = world.take(who, thing)
    world.wander(_STEPS // 4, rest)
    world.walk(who)
    world.wander(_STEPS // 4, rest)
    query = f"Where is the {thing}? The {thing} is in the"
    return Story(world.facts, query, world.at[who], [taken, world.moved[who]])


def three_facts(draws: Draws) -> Story:
    """qa3: the place of a thing before the last one."""
    world = StoryWorld(draws)
    thing, other = draws.pick(THINGS, 2)
    who, *rest = draws.pick(PEOPLE, len(PEOPLE))
    world.take(rest[0], other)
    taken = world.take(who, thing)
    world.wander(_STEPS // 2, rest)
    before, place = world.walk(who), world.at[who]
    world.wander(_STEPS // 2, rest)
    last = world.walk(who)
    query = f"Where was the {thing} before the {world.at[who]}? It was in the"
    return Story(world.facts, query, place, [taken, before, last])


def two_arguments(draws: Draws) -> Story:
    """qa4: what lies beside what."""
    world = StoryWorld(draws)
    places = draws.pick(PLACES, len(PLACES))
    sides = [draws.one(sorted(_SIDES)) for _ in places[1:]]
    for (one, other), side in zip(pairwise(places), sides, strict=True):
        world.tell(f"The {one} is {side} of the {other}.")
    number = int(draws.below(len(sides), 1)[0])
    one, other = places[number : number + 2]
    side, of, answer = draws.one([(sides[number], other, one), (_SIDES[sides[number]], one, other)])
    return Story(world.facts, f"What is {side} of the {of}? It is the", answer, [number])


def three_arguments(draws: Draws) -> Story:
    """qa5: who gave what to whom."""
    world = StoryWorld(draws)
    gifts = [(*draws.pick(PEOPLE, 2), thing) for thing in draws.pick(THINGS, len(THINGS))]
    for one, other, thing in gifts:
        world.walk(one)
        world.tell(f"{one} gave the {thing} to {other}.")
    number = int(draws.below(len(gifts), 1)[0])
    one, other, thing = gifts[number]
    query, answer = draws.one(
        [(f"Who gave the {thing} to {other}? It was", one), (f"Who received the {thing} from {one}? It was", other)]
    )
    return Story(world.facts, query, answer, [2 * number + 1])


def tell_story(request: Request, kind: Callable[[Draws], Story]) -> Example:
    """Put the facts of a story between the sentences of documents, in order."""
    draws = request.draws("facts")
    story = kind(draws)
    return Example(
        query=story.query,
        answers=[story.answer],
        background=partial(essay, request),
        facts=story.facts,
        places=sorted(draws.below(WHOLE, len(story.facts)).tolist()),
        needed=story.needed,
        hops=len(story.needed),
    )


_KINDS = (one_fact, two_facts, three_facts, two_arguments, three_arguments)
BABILONG: Mapping[str, Probe] = {
    f"qa{number}": Probe(partial(tell_story, kind=kind)) for number, kind in enumerate(_KINDS, 1)
}
