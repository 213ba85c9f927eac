"""Probes: solved from their text alone, of exact length, and drawn so that places and answers are uniform."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2_contingency, chisquare

from corpora.errors import FarspanError
from corpora.keyed import make_key
from corpora.storage.ragged import Ragged
from objectives.probes import PROBES, load_probe
from objectives.probes.babilong import PEOPLE, PLACES
from objectives.probes.example import WHOLE, Materials, Request, list_words
from objectives.probes.ruler import NOISE
from tests.artefacts import small_tokenizer
from tests.published_tokenizers import t5_files, tokenizer_of

MADE = [name for name in PROBES if not name.startswith("ruler:qa_")]
WORDS = [
    "".join(parts)
    for parts in product(
        ("ba", "ke", "lo", "mi", "pu", "ro", "su", "ti"),
        ("nta", "rgu", "shi", "dro", "lki"),
        ("lor", "mek", "", "dan", "vin"),
    )
]


class Stories:
    """Documents in memory: 60 of 8 sentences of 9 words."""

    folder = "documents"

    def __init__(self, tokenizer):
        rng = np.random.default_rng(0)
        self.texts = [[f" {' '.join(rng.choice(WORDS, 9)).capitalize()}." for _ in range(8)] for _ in range(60)]
        rows = [tokenizer.encode(sentences) for sentences in self.texts]
        self._tokens = [row.values for row in rows]
        self._starts = [row.offsets[:-1] for row in rows]

    def __len__(self):
        return len(self.texts)

    def take(self, rows):
        columns = {"tokens": self._tokens, "sentence_starts": self._starts}
        return pa.table(
            {
                name: Ragged.from_rows([column[row] for row in rows], np.int32).to_arrow(pa.list_(pa.int32()))
                for name, column in columns.items()
            }
        )


@cache
def materials(kind="bpe"):
    tokenizer = small_tokenizer() if kind == "bpe" else tokenizer_of(t5_files())
    documents: Any = Stories(tokenizer)
    return Materials(tokenizer, sorted(WORDS), documents)


def make(name, number=0, length=2048, depth=50, held=None, seed=0):
    request = Request(
        held or materials(), make_key(seed, "probes"), f"{name}:{length}:{number}", number, length, depth * WHOLE // 100
    )
    return load_probe(name).make(request)


def decode(text, start=0, stop=None):
    return materials().tokenizer.decode(text.tokens[start:stop])


def solve(name, query, text):
    """Answer a question from its text, by other means than those that made it."""
    if "niah" in name:
        keys = re.findall(r"[^ ,?]+-[^ ,?]+", query.partition("?")[0])
        stated = re.findall(r"The value of (\S+) is ([0-9a-f-]+)\.", text)
        return [value for key in keys for one, value in stated if one == key]
    if name == "ruler:vt":
        has, known = dict(re.findall(r"Let (\w+) be (\w+)\.", text)), [re.search(r"value (\d+)", query)[1]]
        while more := [one for one, other in has.items() if other == known[-1]]:
            known += more
        return known[1:]
    if name == "ruler:cwe":
        return [word for word, _ in Counter(re.findall(r"\d+\. (\w+)", text)).most_common(10)]
    if name == "ruler:fwe":
        return [word for word, _ in Counter(text.split()).most_common(4)[1:]]
    return [live(name, query, text)]


def live(name, query, text):
    """Answer a question about a story."""
    at, trail, held, gifts, lies = {}, {}, {}, {}, {}
    facts = r"(\w+) (walked to|picked up) the (\w+)\.|(\w+) gave the (\w+) to (\w+)\.|The (\w+) is (\w+) of the (\w+)\."
    for who, did, what, giver, thing, receiver, one, side, other in re.findall(facts, text):
        if did == "walked to":
            trail.setdefault(who, []).append(what)
        elif did:
            held[what] = who
        elif giver:
            gifts[thing] = giver, receiver
        else:
            lies[side, other], lies[{"north": "south", "east": "west"}[side], one] = one, other
    at = {who: places[-1] for who, places in trail.items()}
    first = query.partition("?")[0].split()
    if name == "babilong:qa1":
        return at[first[2]]
    if name == "babilong:qa2":
        return at[held[first[3]]]
    if name == "babilong:qa3":
        places = trail[held[first[3]]]
        return places[len(places) - 1 - places[::-1].index(first[6]) - 1]
    if name == "babilong:qa4":
        return lies[first[2], first[5]]
    return gifts[first[3]][0 if first[1] == "gave" else 1]


@pytest.mark.parametrize("name", MADE)
def test_an_answer_follows_from_the_text_alone(name):
    for number in range(20):
        example = make(name, number, 1024)
        answer = solve(name, example.query, decode(example.text(materials(), 1000)))
        ordered = name not in ("ruler:cwe", "ruler:vt")
        assert answer == example.answers if ordered else sorted(answer) == sorted(example.answers)
        assert example.targets == (", ".join(example.answers),)


@pytest.mark.parametrize("kind", ["bpe", "t5"])
@pytest.mark.parametrize("name", MADE)
def test_texts_have_the_length_that_is_asked_for(name, kind):
    held = materials(kind)
    for room in (1000, 1049):
        text = make(name, 3, 2048, held=held).text(held, room)
        assert len(text.tokens) == room or name in ("ruler:cwe", "ruler:fwe")
        assert room - 24 < len(text.tokens) <= room
        assert text.starts[0] == 0
        assert (np.diff(text.starts) > 0).all()
        assert text.starts[-1] < len(text.tokens)


@pytest.mark.parametrize("name", [name for name in MADE if PROBES[name].placed])
def test_the_fact_stands_at_its_depth(name):
    for depth in (0, 25, 50, 100):
        example = make(name, 1, depth=depth)
        assert example.attributes(2048, exact=True) == {"length": 2048, "depth": depth, "hops": 1}
        text = example.text(materials(), 2000)
        (fact,) = (n for n in range(len(text.starts)) if example.facts[0] in decode(text, *_sentence(text, n)))
        begin, stop = _sentence(text, fact)
        rest = 2000 - (stop - begin)
        assert abs(begin - depth / 100 * rest) <= 130  # a sentence of codes; none is cut by a fact


def _sentence(text, number):
    return int(text.starts[number]), int(text.starts[number + 1] if number + 1 < len(text.starts) else len(text.tokens))


def uniform(values, bins):
    """Assert that whole numbers below ``bins`` are equally frequent."""
    assert chisquare(np.bincount(values, minlength=bins)).pvalue > 1e-3


NUMBER = 10_000


def test_places_of_10_000_examples_are_uniform_and_independent():
    places = np.array([make("ruler:niah_multiquery", number).places for number in range(NUMBER)])
    tenths = places * 10 // WHOLE
    for column in tenths.T:
        uniform(column, 10)
    pairs = [(tenths[:, 0], tenths[:, 1]), (tenths[:-1, 0], tenths[1:, 0])]  # of one example, and of two neighbours
    other_length = np.array([make("ruler:niah_multiquery", number, 4096).places[0] for number in range(NUMBER)])
    other_seed = np.array([make("ruler:niah_multiquery", number, seed=1).places[0] for number in range(NUMBER)])
    pairs += [(tenths[:, 0], other * 10 // WHOLE) for other in (other_length, other_seed)]
    for one, other in pairs:
        assert chi2_contingency(np.bincount(10 * one + other, minlength=100).reshape(10, 10)).pvalue > 1e-3


def test_answers_of_10_000_examples_are_uniform():
    needles = [make("ruler:niah_single_2", number).answers[0] for number in range(NUMBER)]
    uniform([int(value[0]) - 1 for value in needles], 9)
    uniform([int(value[-1]) for value in needles], 10)
    uniform([int(make("ruler:niah_single_3", number).answers[0][0], 16) for number in range(NUMBER)], 16)
    chains = [make("ruler:vt", number) for number in range(NUMBER)]
    uniform([ord(letter) - ord("a") for chain in chains for name in chain.answers for letter in name], 26)
    assert chisquare(np.histogram([p for chain in chains for p in chain.places], 10, (0, WHOLE))[0]).pvalue > 1e-3
    for name, known in (("qa1", PLACES), ("qa2", PLACES), ("qa3", PLACES), ("qa4", PLACES), ("qa5", PEOPLE)):
        stories = [make(f"babilong:{name}", number) for number in range(NUMBER // 5)]
        uniform([known.index(story.answers[0]) for story in stories], len(known))
        assert len({tuple(story.needed) for story in stories}) > 4


@pytest.mark.parametrize(("name", "room"), [("ruler:cwe", 1000), ("ruler:fwe", 300)])
def test_words_of_lists_stand_anywhere(name, room):
    """RULER's stand at the same places in all examples of a size."""
    counts = np.zeros(10, int)
    for number in range(300):
        example = make(name, number)
        words = re.sub(r"\d+\.", "", decode(example.text(materials(), room))).split()
        places = [place for place, word in enumerate(words) if word in example.answers]
        counts += np.histogram(np.array(places) / len(words), 10, (0, 1))[0]
    assert chisquare(counts).pvalue > 1e-3


def test_examples_depend_on_nothing_but_their_id():
    names = [(name, number) for name in MADE for number in (0, 7)]
    there = {(name, number): make(name, number) for name, number in names}
    for name, number in reversed(names):
        one, other = there[name, number], make(name, number)
        assert (one.query, one.answers, one.facts, one.places) == (
            other.query,
            other.answers,
            other.facts,
            other.places,
        )
        assert np.array_equal(*(example.text(materials(), 1000).tokens for example in (one, other)))
    assert len({make("ruler:niah_multikey_1", number).facts[0] for number in range(500)}) == 500


def test_the_haystack_is_the_documents_and_needles_are_unique():
    text = decode(make("ruler:niah_single_2", 5).text(materials(), 1500))
    sentences = [part for part in re.split(r"(?<=\.)\s+", text.strip()) if not part.startswith("The value")]
    known = {sentence.strip() for story in materials().documents.texts for sentence in story}
    assert all(sentence in known for sentence in sentences[:-1])
    assert any(known_one.startswith(sentences[-1]) for known_one in known)
    found = re.findall(r"The value of (\S+) is (\d+)\.", decode(make("ruler:niah_multikey_2").text(materials(), 4000)))
    assert len({key for key, _ in found}) == len({value for _, value in found}) == len(found) > 50
    assert decode(make("ruler:vt").text(materials(), 2000)).count(NOISE[2]) > 15


@pytest.mark.parametrize(
    ("name", "room", "words"),
    [
        ("ruler:cwe", 100, "60 words do not fit"),
        ("ruler:cwe", 30_000, "190 other words are too few"),
        ("ruler:fwe", 40, "40 tokens are too few for codes"),
        ("ruler:vt", 30, "[0-9]+ tokens of facts leave no room for a text"),
    ],
)
def test_what_does_not_fit_is_refused(name, room, words):
    with pytest.raises(FarspanError, match=words):
        make(name).text(materials(), room)


def test_few_words_are_refused():
    held = replace(materials(), words=WORDS[:4])
    with pytest.raises(FarspanError, match="documents: 4 different words are too few for 39 words or pairs"):
        make("ruler:niah_multikey_2", held=held).text(held, 2_000)


def test_an_unknown_name_lists_all():
    with pytest.raises(
        FarspanError, match=r"'ruler:vtt' \(did you mean 'ruler:vt'\?\); probes: .*ruler:cwe.*babilong:qa5"
    ):
        load_probe("ruler:vtt")


def test_words_are_lower_case_and_survive_the_tokenizer():
    words = list_words(tokenizer_of(t5_files()), ["The cat, the (fox) and 3 Dogs; ox", "cats' don't abcdefghijklmn"])
    assert words == sorted({*words})
    assert {*words} <= {"the", "cat", "fox", "and", "cats"}
