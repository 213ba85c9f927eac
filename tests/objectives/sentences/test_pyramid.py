"""Names of entities, and the selection of sentences entity by entity, compared with results by hand."""

import numpy as np
import pytest

from objectives.sentences.pyramid import Mentions, choose_pyramid, entity_form
from objectives.sentences.selection import Sentences


@pytest.mark.parametrize(
    ("mention", "form"),
    [
        ("White House", "white house"),
        ("the White\n House's", "white house"),
        ("The White House’s", "white house"),
        ("Theodore", "theodore"),  # the published code makes "odore" of it
        ("Athens", "athens"),  # and "ans" of this
        ("Obama 's", "obama"),
        ("U.S.", "u.s."),
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),
        ("The The", "the"),
        ("the", ""),
        ("'s", ""),
        ("  ", ""),
    ],
)
def test_a_name_is_its_words_without_case_and_without_what_stands_around_it(mention, form):
    assert entity_form(mention) == form


def walked(
    scores: list[float], said: list[tuple[str, int, int]], picks: int, ties: str = "earlier", rows: int = 1
) -> list[list[tuple[int, str]]]:
    """Sentences and what brought them, row by row in the order of choice; ``said``: name, sentence, document.

    Every row has the same sentences; in later rows they mention the same names, which are others' there.
    """
    size = len(scores)
    names = list(dict.fromkeys((row, name) for row in range(rows) for name, _, _ in said))
    sentences = Sentences(
        np.arange(size * rows), np.ones(size * rows, int), np.arange(rows + 1) * size, np.arange(rows + 1)
    )
    mentions = Mentions(
        [name for _, name in names],
        np.array([names.index((row, name)) for row in range(rows) for name, _, _ in said], np.int64),
        np.array([row * size + sentence for row in range(rows) for _, sentence, _ in said], np.int64),
        np.array([row * 100 + document for row in range(rows) for _, _, document in said], np.int64),
    )
    choice, entities = choose_pyramid(np.tile(scores, rows), mentions, sentences, np.full(rows, picks), ties)
    labels = [*mentions.forms, ""]
    return [
        [(int(n) - row * size, labels[entities[n]]) for n in numbers]
        for row, numbers in enumerate(map(choice.numbers.__getitem__, range(rows)))
    ]


def test_what_more_documents_mention_comes_first_and_brings_its_best_sentence():
    scores = [0.9, 0.2, 0.3, 0.1, 0.4]
    said = [("two", 1, 0), ("three", 1, 0), ("two", 4, 2), ("three", 2, 1), ("three", 3, 2)]
    assert walked(scores, said, 3) == [[(2, "three"), (4, "two"), (0, "")]]
    assert walked(scores, said, 1) == [[(2, "three")]]


def test_rows_do_not_share_entities():
    said = [("a", 1, 0), ("b", 0, 0), ("b", 2, 1)]
    expected = [(2, "b"), (1, ""), (0, "")]
    assert walked([0.1, 0.2, 0.3], said, 3, rows=3) == [expected] * 3


def test_mentions_count_once_in_a_document():
    assert walked([0.1, 0.2], [("a", 0, 0), ("a", 0, 0), ("a", 1, 0)], 1) == [[(1, "")]]
    assert walked([0.1, 0.2], [("a", 0, 0), ("a", 0, 1)], 1) == [[(0, "a")]]


def test_a_sentence_that_is_there_already_adds_nothing():
    said = [("a", 0, 0), ("a", 1, 1), ("b", 0, 0), ("b", 2, 1)]
    assert walked([0.9, 0.1, 0.2, 0.3], said, 2) == [[(0, "a"), (3, "")]]


def test_an_entity_without_a_sentence_above_0_brings_none():
    """In the published code it takes a place, with sentence -1, and one sentence less is chosen."""
    said = [("zero", 0, 0), ("zero", 1, 1), ("a", 2, 0), ("a", 3, 1)]
    assert walked([0.0, 0.0, 0.1, 0.2], said, 2) == [[(3, "a"), (2, "")]]


def test_of_equal_sentences_the_earliest_is_taken():
    """In the published code the last ones are filled in."""
    assert walked([0.5] * 4, [("a", 3, 1), ("a", 1, 0)], 3) == [[(1, "a"), (0, ""), (2, "")]]


def test_of_equally_frequent_entities_the_first_or_the_last_to_be_mentioned_comes_first():
    said = [("a", 0, 0), ("b", 1, 0), ("b", 1, 1), ("a", 0, 1)]
    assert walked([0.5, 0.5], said, 1) == [[(0, "a")]]
    assert walked([0.5, 0.5], said, 1, ties="later") == [[(1, "b")]]


def test_there_may_be_no_entities_and_no_sentences():
    assert walked([0.1, 0.3, 0.2], [], 2) == [[(1, ""), (2, "")]]
    assert walked([], [], 0, rows=2) == [[], []]
